// Plain matrices to strips (formats.h) and back. Sizes are checked by the callers in bind_pack.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

#include "formats.h"
#include "half.h"

namespace forerun {

// The values of NF4's 16 codes, as bitsandbytes has them (QLoRA, appendix E).
inline constexpr float NF4_VALUES[16] = {
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
    -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
    0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f,
};

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
