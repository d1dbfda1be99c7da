// What an instruction set provides: a table of plain functions over packed data.
//
// Every function computes each output with the same operations in the same order, whatever else it computes beside it:
// how many rows, which of them, which strips. That is the promise of row invariance, and why inner loops keep one
// chain per output and why the compiler may not contract products and sums (-ffp-contract=off).
#pragma once
#include <cstddef>
#include <cstdint>

#include "formats.h"

namespace forerun {

// How the activations of a product are laid out; which one a format wants is the instruction set's choice.
enum Act : int {
    ACT_F32,      // floats
    ACT_ROUNDED,  // floats that were rounded to bfloat16
    ACT_BF16,     // bfloat16
    ACT_GROUP8,   // int8, a scale and a sum per group of 64
    ACT_BLOCK8,   // the same per block of 32
    ACT_HALF8,    // the same per half of such a block
};

struct Packed {  // rows of activations, each `stride` bytes; scales and sums [rows][per]
    Act act;
    int k;  // padded to K_STEP
    size_t stride;
    uint8_t* data;
    float* scale;
    int32_t* sum;
    int per;
};

enum Then : int { STORE, ADD, SILU, ADD_SILU, GELU };  // SILU, GELU (by its approximation with tanh): of gates, times ups

struct Product {  // out[m][n] = sum over k of a[m][k] * w[n][k], plus bias[n]
    const uint8_t* w;
    size_t strip_bytes;
    Packed a;
    int rows;
    float* out;
    size_t out_stride;  // floats
    const float* bias;  // padded to strips, or null
    Then then;
};

// Attention works on tiles of 16 consecutive positions. A key tile is [dim / 2][16][2] bfloat16 (or [dim][16] float or
// int8), a value tile [8][dims][2] bfloat16 (or [16][dims]), dims padded to 16.
enum KVType : int { KV_F32, KV_BF16, KV_INT8, KV_TYPES };

struct Scores {  // out[q][16 * t + j] = query q times key j of tile t
    const uint8_t* q;  // ACT_F32, or what the instruction set wants for bfloat16
    size_t q_stride;
    int queries, dim, tiles;  // dim even
    const uint8_t* const* keys;
    const float* const* scales;  // int8: of the 16 keys
    float* out;
    size_t out_stride;
};

struct Mix {  // out[q][d] += sum over keys of p[q][key] * value[key][d]
    const uint8_t* p;
    size_t p_stride;
    int queries, dims, tiles;
    const uint8_t* const* values;
    float* out;
    size_t out_stride;
};

struct Softmax {  // scores of positions [16 * t] to weights, unnormalised; positions outside [low, end) weigh nothing
    float* scores;
    int tiles, low, end;  // relative to the first tile
    float scale;
    const float* const* scales;  // int8: of the values, multiplied in
    uint8_t* p;                  // ACT_F32, or what the instruction set wants for bfloat16
    KVType type;
};

struct Kernels {
    const char* name;
    Act act[FORMATS];
    Act kv_act;  // of queries and weights where keys and values are bfloat16
    void (*product[FORMATS])(const Product&, int first_strip, int end_strip);
    void (*pack)(const float* x, const float* norm, int n, float eps, const Packed& to, int row);
    void (*norm)(const float* x, const float* weight, int n, float eps, float* out);
    void (*pack_query)(Act, const float* x, int n, uint8_t* out);
    void (*rotate)(float* x, const float* cos, const float* sin, int half);
    void (*scores[KV_TYPES])(const Scores&);
    float (*softmax)(const Softmax&);  // returns the sum
    void (*mix[KV_TYPES])(const Mix&);
};

// (Functions in headers are static: a copy for each file, in the file's own instructions.)

// Values that share a scale and a sum; 0 if there are none.
static constexpr int act_group(Act act) { return act == ACT_GROUP8 ? K_STEP : act == ACT_BLOCK8 ? BLOCK : act == ACT_HALF8 ? BLOCK / 2 : 0; }
static constexpr size_t act_bytes(Act act) { return act == ACT_F32 || act == ACT_ROUNDED ? 4 : act == ACT_BF16 ? 2 : 1; }

const Kernels* kernels_portable();
const Kernels* kernels_avx2();
const Kernels* kernels_avx512();
const Kernels* kernels_avx512_bf16();
const Kernels* kernels_amx();
const Kernels* kernels_amx_emulated();

}  // namespace forerun
