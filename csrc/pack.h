// Plain matrices to strips (formats.h) and back. Sizes are checked by the callers in bind_pack.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

#include "formats.h"
#include "half.h"

namespace forerun {

// Bytes of a packed matrix that comes from outside; std::invalid_argument for sizes that no matrix has.
size_t checked_matrix_bytes(Format format, size_t rows, size_t cols);

// Matrices are [rows, cols] row by row; `out` has matrix_bytes(format, rows, cols) bytes and is written whole.
void pack_f32(const float* matrix, size_t rows, size_t cols, uint8_t* out);
void pack_bf16(const uint16_t* matrix, size_t rows, size_t cols, uint8_t* out);
// scales [rows]. False if a code is -128.
bool pack_int8(const int8_t* codes, const float* scales, size_t rows, size_t cols, uint8_t* out);
// Q8_0, Q4_0, Q4_1: d and, for Q4_1, m [rows, cols / 32]. False if a code of four bits is not within 0..15.
bool pack_blocks(Format format, const int8_t* codes, const Half* d, const Half* m, size_t rows, size_t cols,
                 uint8_t* out);
// absmax [rows, cols / 64]. False if a code is above 15.
bool pack_nf4(const uint8_t* codes, const float* absmax, size_t rows, size_t cols, uint8_t* out);

// The values of one row: out [cols].
void unpack_row(Format format, const uint8_t* packed, size_t rows, size_t cols, size_t row, float* out);
// All of them: out [rows, cols].
void unpack(Format format, const uint8_t* packed, size_t rows, size_t cols, float* out);

}  // namespace forerun
