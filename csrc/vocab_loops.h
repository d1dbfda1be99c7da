// The loops of vocab.cpp that pass over a whole row.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#ifdef __GNUC__
#define FORERUN_INLINE inline __attribute__((always_inline))  // into every clone, or they would call the plainest one
#else
#define FORERUN_INLINE inline
#endif

namespace forerun {
namespace vocab {

constexpr size_t LANES = 64;    // enough that compilers make vectors of loops over them; with 16 they unroll instead
constexpr size_t GROUP = 1024;  // logits that share a line of peaks: peak j is the largest of j, j + 64, j + 128, ...
constexpr size_t RACERS = 64;   // tokens whose arrival is bounded before any is computed
constexpr float INF = std::numeric_limits<float>::infinity();

template <class To, class From>
FORERUN_INLINE To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To out;
    std::memcpy(&out, &value, sizeof out);
    return out;
}

// 2^x for x <= 0 to about one unit in the last place, exactly 1 for 0; nothing is left where the normal floats end. The
// polynomial of Cephes' exp2f on [-1/2, 1/2].
FORERUN_INLINE float exp2_of(float x) {
    const float in = x > -127.0f ? x : -127.0f;
    const float shifted = in + 12582912.0f;  // 1.5 * 2^23 leaves the nearest whole number in the low bits
    const float r = in - (shifted - 12582912.0f);
    float y = 1.535336188319500e-4f;
    y = y * r + 1.339887440266574e-3f;
    y = y * r + 9.618437357674640e-3f;
    y = y * r + 5.550332471162809e-2f;
    y = y * r + 2.402264791363012e-1f;
    y = y * r + 6.931472028550421e-1f;
    y = y * r + 1.0f;
    return y * bits_as<float>((bits_as<uint32_t>(shifted) + 127u) << 23);  // -127: the bits of zero
}

// A number of 52 bits drawn from (key, token), as forerun.core.noise draws it.
FORERUN_INLINE uint64_t drawn(uint64_t key, uint64_t token) {
    uint64_t bits = token * 0x9E3779B97F4A7C15u + key;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    return (bits ^ (bits >> 31)) >> 12;
}

// The peaks of every group, LANES each; returns whether a logit is NaN (and then they mean nothing).
bool find_peaks(const float* row, size_t n, float* peaks);

// The sum of 2^((x - best) * pace) over the row; each of them is left in `out` if there is one.
double sum_exp2(const float* row, size_t n, float best, float pace, float* out);

void scale(float* weights, size_t n, float factor);

// Whether any of RACERS tokens may beat `pace`, or has a weight that is no number. A token's time is -log(u), which is
// at least 1 - u, so what weighs less than pace * (1 - u) comes too late and needs no logarithm.
bool any_may_win(const float* weights, const int64_t* ids, size_t first, uint64_t key, double pace);

}  // namespace vocab
}  // namespace forerun
