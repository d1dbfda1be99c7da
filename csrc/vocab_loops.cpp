#include "vocab_loops.h"

// One body, compiled for several instruction sets; the loader takes the best that runs. Only where the loader can do
// that, and not under a sanitizer, which is not awake at that moment. All give the same bits.
#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#if !defined(__clang__) && __GNUC__ >= 12
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#endif
#ifndef CLONES
#define CLONES
#endif

namespace forerun {
namespace vocab {

static FORERUN_INLINE void peaks_of(const float* group, float* peaks, uint32_t* strange) {
    float best[LANES];
    uint32_t nan[LANES];
    for (size_t j = 0; j < LANES; j++) best[j] = -INF;
    for (size_t j = 0; j < LANES; j++) nan[j] = 0;
    for (size_t i = 0; i < GROUP; i += LANES) {
        const float* x = group + i;
        for (size_t j = 0; j < LANES; j++) {
            best[j] = x[j] > best[j] ? x[j] : best[j];
            nan[j] |= x[j] != x[j] ? 1u : 0u;
        }
    }
    std::memcpy(peaks, best, sizeof best);
    for (size_t j = 0; j < LANES; j++) strange[j] |= nan[j];
}

CLONES bool find_peaks(const float* row, size_t n, float* peaks) {
    uint32_t strange[LANES] = {};
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP, peaks += LANES) peaks_of(row + i, peaks, strange);
    if (i < n) {
        float rest[GROUP];
        for (size_t j = 0; j < GROUP; j++) rest[j] = i + j < n ? row[i + j] : -INF;
        peaks_of(rest, peaks, strange);
    }
    uint32_t any = 0;
    for (size_t j = 0; j < LANES; j++) any |= strange[j];
    return any != 0;
}

CLONES double sum_exp2(const float* row, size_t n, float best, float pace, float* out) {
    double sums[LANES] = {};
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        float part[LANES] = {};
        for (size_t k = i; k < i + GROUP; k += LANES) {
            float e[LANES];
            for (size_t j = 0; j < LANES; j++) e[j] = exp2_of((row[k + j] - best) * pace);
            for (size_t j = 0; j < LANES; j++) part[j] += e[j];
            if (out != nullptr) std::memcpy(out + k, e, sizeof e);
        }
        for (size_t j = 0; j < LANES; j++) sums[j] += part[j];
    }
    double sum = 0;
    for (size_t j = 0; j < LANES; j++) sum += sums[j];
    for (; i < n; i++) {
        const float e = exp2_of((row[i] - best) * pace);
        if (out != nullptr) out[i] = e;
        sum += e;
    }
    return sum;
}

CLONES void scale(float* weights, size_t n, float factor) {
    for (size_t i = 0; i < n; i++) weights[i] *= factor;
}

CLONES bool any_may_win(const float* weights, const int64_t* ids, size_t first, uint64_t key, double pace) {
    uint64_t hits = 0;
    for (size_t j = 0; j < RACERS; j++) {
        const uint64_t token = ids != nullptr ? uint64_t(ids[first + j]) : first + j;
        const double above = bits_as<double>(drawn(key, token) | 0x3FF0000000000000u);  // 1 + u, a half step below
        const double least = (2.0 - above) - 0x1p-53;                                   // 1 - u, exactly
        const double weight = weights[first + j];
        hits |= weight >= pace * least || !(weight < double(INF)) ? 1u : 0u;
    }
    return hits != 0;
}

}  // namespace vocab
}  // namespace forerun
