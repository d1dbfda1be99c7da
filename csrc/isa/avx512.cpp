// AVX-512 without its later additions (Skylake-X): bfloat16 as floats, bytes through 16-bit products.
#include <immintrin.h>

#include "../kernels.h"

namespace forerun {
namespace {

#include "avx512_ops.h"

struct Isa : Avx512 {
    static constexpr Act PAIR_ACT = ACT_ROUNDED, KV_ACT = ACT_ROUNDED;

    struct PairW { F even, odd; };
    struct PairA { F even, odd; };
    static inline PairW pair_weights(const uint8_t* p) {
        I w = _mm512_loadu_si512(p);
        return {_mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), _mm512_castsi512_ps(_mm512_and_si512(w, set1i(0xffff0000)))};
    }
    static inline PairA pair_act(const uint8_t* a, int k) { return {set1(((const float*)a)[2 * k]), set1(((const float*)a)[2 * k + 1])}; }
    static inline F pair_dot(F c, PairW w, PairA a) { return fma(w.odd, a.odd, fma(w.even, a.even, c)); }

    struct Halves { I even, odd; };  // bytes 0 and 2, bytes 1 and 3 of each lane, as 16 bits
    static inline Halves unsigned_halves(I w) {
        const I low = _mm512_set1_epi32(0x00ff00ff);
        return {_mm512_and_si512(w, low), _mm512_and_si512(_mm512_srli_epi32(w, 8), low)};
    }
    static inline Halves byte_weights(const uint8_t* p) { return unsigned_halves(_mm512_loadu_si512(p)); }
    static inline Halves low_nibbles(const uint8_t* p) {
        return unsigned_halves(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(0x0f0f0f0f)));
    }
    static inline Halves high_nibbles(const uint8_t* p) {
        return unsigned_halves(_mm512_and_si512(_mm512_srli_epi32(_mm512_loadu_si512(p), 4), _mm512_set1_epi32(0x0f0f0f0f)));
    }
    static inline Halves byte_act(const uint8_t* a) {
        int32_t four;
        __builtin_memcpy(&four, a, 4);
        I x = _mm512_set1_epi32(four);
        return {_mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8), _mm512_srai_epi16(x, 8)};
    }
    static inline I byte_dot(I c, Halves w, Halves a) {
        return addi(c, addi(_mm512_madd_epi16(w.even, a.even), _mm512_madd_epi16(w.odd, a.odd)));
    }
};

#include "../kernels_math.h"
#include "../kernels_impl.h"

}  // namespace

const Kernels* kernels_avx512() {
    static const Kernels kernels = table("avx512");
    return &kernels;
}

}  // namespace forerun
