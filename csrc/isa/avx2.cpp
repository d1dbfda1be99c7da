// AVX2 with FMA and F16C (Haswell, Zen): 16 floats in two registers.
#include <immintrin.h>

#include "../kernels.h"

namespace forerun {
namespace {

struct F { __m256 a, b; };
struct I { __m256i a, b; };

#include "lanes.h"

struct Isa : Lanes<Isa> {
    static constexpr int ROWS = 4;
    static constexpr Act PAIR_ACT = ACT_ROUNDED, KV_ACT = ACT_ROUNDED;

    static inline F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
    static inline F set1(float x) { F v; v.a = v.b = _mm256_set1_ps(x); return v; }
    static inline F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
    static inline void store(float* p, F v) { _mm256_storeu_ps(p, v.a); _mm256_storeu_ps(p + 8, v.b); }
    static inline F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
    static inline F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
    static inline F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
    static inline F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
    static inline F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
    static inline F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
    static inline F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
    static inline __m256 larger8(__m256 x, __m256 y) {
        return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(x), _mm256_castps_si256(y)));
    }
    static inline F larger(F x, F y) { return {larger8(x.a, y.a), larger8(x.b, y.b)}; }  // of what is not negative; NaN wins
    static inline F abs(F x) {
        const __m256 sign = _mm256_set1_ps(-0.0f);
        return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
    }
    static inline F rint(F x) {
        constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        return {_mm256_round_ps(x.a, nearest), _mm256_round_ps(x.b, nearest)};
    }
    static inline __m256 power8(__m256 n) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
    }
    static inline F power_of_two(F n) { return {power8(n.a), power8(n.b)}; }
    static inline F keep_at_least(F x, F low, F v) {
        return {_mm256_and_ps(_mm256_cmp_ps(x.a, low.a, _CMP_GE_OQ), v.a), _mm256_and_ps(_mm256_cmp_ps(x.b, low.b, _CMP_GE_OQ), v.b)};
    }

    static inline I zeroi() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
    static inline I set1i(int32_t x) { I v; v.a = v.b = _mm256_set1_epi32(x); return v; }
    static inline void storei(int32_t* p, I v) { _mm256_storeu_si256((__m256i*)p, v.a); _mm256_storeu_si256((__m256i*)(p + 8), v.b); }
    static inline I addi(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
    static inline F from_int(I v) { return {_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)}; }
    static inline I round_to_int(F v) { return {_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)}; }
    static inline void store_bytes(int8_t* p, I v) {
        alignas(32) int32_t x[16];
        storei(x, v);
        for (int i = 0; i < 16; i++) p[i] = int8_t(x[i]);
    }
    static inline I load_u8(const uint8_t* p) {
        return {_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)), _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)(p + 8)))};
    }
    static inline F load_s8(const int8_t* p) {
        return from_int({_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)), _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(p + 8)))});
    }
    static inline I shift_right(I v, int n) { return {_mm256_srli_epi32(v.a, n), _mm256_srli_epi32(v.b, n)}; }
    static inline F load_half(const uint16_t* p) {
        return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
    }

    using Table = F;
    static inline Table table16(const float* p) { return load(p); }
    static inline __m256 lookup8(Table t, __m256i code) {
        __m256 low = _mm256_permutevar8x32_ps(t.a, code), high = _mm256_permutevar8x32_ps(t.b, code);
        return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));  // bit 3 says which half
    }
    static inline F lookup(Table t, I code) { return {lookup8(t, code.a), lookup8(t, code.b)}; }

    static inline __m256i bf16_bits8(__m256 v) {
        __m256i x = _mm256_castps_si256(v);
        __m256i even = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
        __m256i up = _mm256_add_epi32(x, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
        __m256i quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x400000));
        return _mm256_blendv_epi8(up, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    }
    static inline __m256 rounded8(__m256 v) { return _mm256_castsi256_ps(_mm256_and_si256(bf16_bits8(v), _mm256_set1_epi32(0xffff0000))); }
    static inline F rounded(F v) { return {rounded8(v.a), rounded8(v.b)}; }
    static inline void store_bf16(uint16_t* p, F v) {
        alignas(32) uint32_t x[16];
        _mm256_store_si256((__m256i*)x, bf16_bits8(v.a));
        _mm256_store_si256((__m256i*)(x + 8), bf16_bits8(v.b));
        for (int i = 0; i < 16; i++) p[i] = uint16_t(x[i] >> 16);
    }

    struct PairW { F even, odd; };
    struct PairA { F even, odd; };
    static inline F as_float(__m256i a, __m256i b) { return {_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)}; }
    static inline I load_bytes(const uint8_t* p) { return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 32))}; }
    static inline PairW pair_weights(const uint8_t* p) {
        I w = load_bytes(p);
        const __m256i high = _mm256_set1_epi32(0xffff0000);
        return {as_float(_mm256_slli_epi32(w.a, 16), _mm256_slli_epi32(w.b, 16)), as_float(_mm256_and_si256(w.a, high), _mm256_and_si256(w.b, high))};
    }
    static inline PairA pair_act(const uint8_t* a, int k) { return {set1(((const float*)a)[2 * k]), set1(((const float*)a)[2 * k + 1])}; }
    static inline F pair_dot(F c, PairW w, PairA a) { return fma(w.odd, a.odd, fma(w.even, a.even, c)); }

    struct Halves { I even, odd; };
    static inline Halves unsigned_halves(I w) {
        const __m256i low = _mm256_set1_epi32(0x00ff00ff);
        return {{_mm256_and_si256(w.a, low), _mm256_and_si256(w.b, low)},
                {_mm256_and_si256(_mm256_srli_epi32(w.a, 8), low), _mm256_and_si256(_mm256_srli_epi32(w.b, 8), low)}};
    }
    static inline Halves byte_weights(const uint8_t* p) { return unsigned_halves(load_bytes(p)); }
    static inline Halves nibbles(I w) {
        const __m256i four = _mm256_set1_epi32(0x0f0f0f0f);
        return unsigned_halves({_mm256_and_si256(w.a, four), _mm256_and_si256(w.b, four)});
    }
    static inline Halves low_nibbles(const uint8_t* p) { return nibbles(load_bytes(p)); }
    static inline Halves high_nibbles(const uint8_t* p) { return nibbles(shift_right(load_bytes(p), 4)); }
    static inline Halves byte_act(const uint8_t* a) {
        int32_t four;
        __builtin_memcpy(&four, a, 4);
        __m256i x = _mm256_set1_epi32(four);
        __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), odd = _mm256_srai_epi16(x, 8);
        return {{even, even}, {odd, odd}};
    }
    static inline I byte_dot(I c, Halves w, Halves a) {
        return {_mm256_add_epi32(c.a, _mm256_add_epi32(_mm256_madd_epi16(w.even.a, a.even.a), _mm256_madd_epi16(w.odd.a, a.odd.a))),
                _mm256_add_epi32(c.b, _mm256_add_epi32(_mm256_madd_epi16(w.even.b, a.even.b), _mm256_madd_epi16(w.odd.b, a.odd.b)))};
    }
};

#include "../kernels_math.h"
#include "../kernels_impl.h"

}  // namespace

const Kernels* kernels_avx2() {
    static const Kernels kernels = table("avx2");
    return &kernels;
}

}  // namespace forerun
