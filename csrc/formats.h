// How a packed matrix lies in memory. One layout for every instruction set, so a packed file serves them all.
//
// A matrix [N outputs, K inputs] is cut into strips of 32 outputs (two panels of 16); N is padded with zero rows to a
// multiple of 32, K with zero columns to a multiple of 64. A strip is read front to back, once, and nothing else is
// read for its outputs. Within a strip, step by step along K:
//
//   f32    [Kp]     [2 panels][16 outputs]           floats
//   bf16   [Kp / 2] [2 panels][16 outputs][2 k]      what VDPBF16PS and an AMX tile row want
//   int8   [Kp / 4] [2 panels][16 outputs][4 k]      bytes q + 128, q in -127..127; then float scale[32]
//   q8_0   [Kp / 32] { half d[32];             u8 [8 groups of 4 k][2][16][4], bytes q + 128 }
//   q4_0   [Kp / 32] { half d[32];             u8 [4][2][16][4], low nibble group g, high nibble group g + 4; value d * (q - 8) }
//   q4_1   [Kp / 32] { half d[32]; half m[32]; u8 as q4_0;                                       value d * q + m }
//   nf4    [Kp / 64] { float absmax[32];       u8 [32 k pairs][2][16], low nibble the even k }
//
// Every piece is a multiple of 64 bytes; a strip starts at a multiple of 64.
#pragma once
#include <cstddef>
#include <cstdint>

namespace forerun {

enum Format : int { F32, BF16, INT8, Q8_0, Q4_0, Q4_1, NF4, FORMATS };
inline constexpr const char* FORMAT_NAMES[FORMATS] = {"f32", "bf16", "int8", "q8_0", "q4_0", "q4_1", "nf4"};

constexpr int STRIP = 32, PANEL = 16, K_STEP = 64, BLOCK = 32, NF4_BLOCK = 64;

// The values of NF4's 16 codes, as bitsandbytes has them (QLoRA, appendix E).
inline constexpr float NF4_VALUES[16] = {
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
    -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
    0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f,
};

static constexpr size_t padded(size_t n, size_t step) { return (n + step - 1) / step * step; }
static constexpr size_t strips(size_t rows) { return (rows + STRIP - 1) / STRIP; }

// Bytes that one K step of `unit(format)` inputs takes in a strip.
static constexpr size_t unit_bytes(Format f) {
    switch (f) {
        case F32: case BF16: case INT8: return 128;
        case Q8_0: return 64 + 1024;
        case Q4_0: return 64 + 512;
        case Q4_1: return 128 + 512;
        case NF4: return 128 + 1024;
        default: return 0;
    }
}
static constexpr size_t unit(Format f) {
    switch (f) {
        case F32: return 1;
        case BF16: return 2;
        case INT8: return 4;
        case Q8_0: case Q4_0: case Q4_1: return BLOCK;
        case NF4: return NF4_BLOCK;
        default: return 1;
    }
}
static constexpr size_t strip_bytes(Format f, size_t cols) {
    return padded(cols, K_STEP) / unit(f) * unit_bytes(f) + (f == INT8 ? STRIP * sizeof(float) : 0);
}
static constexpr size_t matrix_bytes(Format f, size_t rows, size_t cols) { return strips(rows) * strip_bytes(f, cols); }

}  // namespace forerun
