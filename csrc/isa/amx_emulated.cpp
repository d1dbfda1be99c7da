// The AMX kernels with the tile instructions emulated, for tests on machines without them: that layouts, row counts and
// remainders are right. What it cannot show is the instructions' own rounding, and speed.
#include <immintrin.h>

#include "../kernels.h"

namespace forerun {
namespace {

struct Tiles {
    uint8_t rows[8], bytes[8];
    alignas(64) uint8_t at[8][16][64];
};
thread_local Tiles tiles;

struct ConfigView {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

inline void tile_configure(const void* config) {
    ConfigView view;
    __builtin_memcpy(&view, config, sizeof view);
    for (int t = 0; t < 8; t++) {
        if (view.rows[t] > 16 || view.bytes[t] > 64) __builtin_trap();  // as the processor would
        tiles.rows[t] = view.rows[t];
        tiles.bytes[t] = uint8_t(view.bytes[t]);
    }
}
inline void tile_release() {
    for (int t = 0; t < 8; t++) tiles.rows[t] = 0;
}
inline void tile_zero(int t) { __builtin_memset(tiles.at[t], 0, sizeof tiles.at[t]); }
inline void tile_load(int t, const void* base, size_t stride) {
    tile_zero(t);
    if (!tiles.rows[t]) __builtin_trap();
    for (int r = 0; r < tiles.rows[t]; r++) __builtin_memcpy(tiles.at[t][r], (const uint8_t*)base + r * stride, tiles.bytes[t]);
}
inline void tile_store(int t, void* base, size_t stride) {
    if (!tiles.rows[t]) __builtin_trap();
    for (int r = 0; r < tiles.rows[t]; r++) __builtin_memcpy((uint8_t*)base + r * stride, tiles.at[t][r], tiles.bytes[t]);
}
// The shapes must fit as the processor demands: rows of c and a, columns of c and b, inner sizes of a and b.
inline void check(int c, int a, int b) {
    if (tiles.rows[c] != tiles.rows[a] || tiles.bytes[c] != tiles.bytes[b] || tiles.bytes[a] != 4 * tiles.rows[b]) __builtin_trap();
}
inline float bf16(const uint8_t* p) {
    uint16_t half;
    __builtin_memcpy(&half, p, 2);
    const uint32_t bits = uint32_t(half) << 16;
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}
inline void tile_bf16_dot(int c, int a, int b) {
    check(c, a, b);
    for (int m = 0; m < tiles.rows[c]; m++)
        for (int n = 0; n < tiles.bytes[c] / 4; n++) {
            float even = 0, odd = 0, sum;
            for (int k = 0; k < tiles.rows[b]; k++) {
                even = __builtin_fmaf(bf16(&tiles.at[a][m][4 * k]), bf16(&tiles.at[b][k][4 * n]), even);
                odd = __builtin_fmaf(bf16(&tiles.at[a][m][4 * k + 2]), bf16(&tiles.at[b][k][4 * n + 2]), odd);
            }
            __builtin_memcpy(&sum, &tiles.at[c][m][4 * n], 4);
            sum += even + odd;
            __builtin_memcpy(&tiles.at[c][m][4 * n], &sum, 4);
        }
}
inline void tile_s8u8_dot(int c, int a, int b) {
    check(c, a, b);
    for (int m = 0; m < tiles.rows[c]; m++)
        for (int n = 0; n < tiles.bytes[c] / 4; n++) {
            int32_t sum;
            __builtin_memcpy(&sum, &tiles.at[c][m][4 * n], 4);
            for (int k = 0; k < tiles.rows[b]; k++)
                for (int i = 0; i < 4; i++) sum += int8_t(tiles.at[a][m][4 * k + i]) * int32_t(tiles.at[b][k][4 * n + i]);
            __builtin_memcpy(&tiles.at[c][m][4 * n], &sum, 4);
        }
}

#define TILE_CONFIGURE(config) tile_configure(config)
#define TILE_RELEASE() tile_release()
#define TILE_ZERO(t) tile_zero(t)
#define TILE_LOAD(t, base, stride) tile_load(t, base, stride)
#define TILE_STORE(t, base, stride) tile_store(t, base, stride)
#define TILE_BF16(c, a, b) tile_bf16_dot(c, a, b)
#define TILE_S8U8(c, a, b) tile_s8u8_dot(c, a, b)

#include "avx512_ops.h"
#include "avx512_bf16_isa.h"
#include "../kernels_math.h"
#include "../kernels_impl.h"
#include "amx_kernels.h"

}  // namespace

const Kernels* kernels_amx_emulated() {
    static const Kernels kernels = tile_table("amx_emulated");
    return &kernels;
}

}  // namespace forerun
