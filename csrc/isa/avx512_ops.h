// 16 floats in one AVX-512 register; shared by the instruction sets that have it. Included inside their namespaces.

using F = __m512;
using I = __m512i;

struct Avx512 {
    static constexpr int ROWS = 12;  // rows that the 32 registers hold sums for

    static inline F zero() { return _mm512_setzero_ps(); }
    static inline F set1(float x) { return _mm512_set1_ps(x); }
    static inline F load(const float* p) { return _mm512_loadu_ps(p); }
    static inline void store(float* p, F v) { _mm512_storeu_ps(p, v); }
    static inline F add(F a, F b) { return _mm512_add_ps(a, b); }
    static inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
    static inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
    static inline F div(F a, F b) { return _mm512_div_ps(a, b); }
    static inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
    static inline F max(F a, F b) { return _mm512_max_ps(a, b); }
    static inline F min(F a, F b) { return _mm512_min_ps(a, b); }
    static inline F larger(F a, F b) {  // of what is not negative; NaN wins
        return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
    }
    static inline float largest(F v) {
        const int32_t bits = _mm512_reduce_max_epi32(_mm512_castps_si512(v));
        float most;
        __builtin_memcpy(&most, &bits, sizeof most);
        return most;
    }
    static inline F abs(F a) { return _mm512_abs_ps(a); }
    static inline F rint(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
    static inline F power_of_two(F n) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
    }
    static inline F keep_at_least(F x, F low, F v) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, low, _CMP_GE_OQ), v); }

    // Halves are added to halves, down to one lane: the tree of kernels_math.h.
    static inline float sum(F v) { return _mm512_reduce_add_ps(v); }
    static inline float top(F v) { return _mm512_reduce_max_ps(v); }
    static inline int32_t sumi(I v) { return _mm512_reduce_add_epi32(v); }

    static inline I zeroi() { return _mm512_setzero_si512(); }
    static inline I set1i(int32_t x) { return _mm512_set1_epi32(x); }
    static inline void storei(int32_t* p, I v) { _mm512_storeu_si512(p, v); }
    static inline I addi(I a, I b) { return _mm512_add_epi32(a, b); }
    static inline F from_int(I v) { return _mm512_cvtepi32_ps(v); }
    static inline I round_to_int(F v) { return _mm512_cvtps_epi32(v); }
    static inline void store_bytes(int8_t* p, I v) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(v)); }
    static inline I load_u8(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)); }
    static inline F load_s8(const int8_t* p) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
    }
    static inline I shift_right(I v, int n) { return _mm512_srli_epi32(v, n); }
    static inline F load_half(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }

    using Table = __m512;
    static inline Table table16(const float* p) { return load(p); }
    static inline F lookup(Table t, I code) { return _mm512_permutexvar_ps(code, t); }  // looks at 4 bits only

    // To nearest, ties to even; a NaN stays one.
    static inline I bf16_bits(F v) {
        I x = _mm512_castps_si512(v);
        I even = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
        I up = _mm512_add_epi32(x, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
        __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        return _mm512_mask_or_epi32(up, nan, x, _mm512_set1_epi32(0x400000));
    }
    static inline F rounded(F v) { return _mm512_castsi512_ps(_mm512_and_si512(bf16_bits(v), _mm512_set1_epi32(0xffff0000))); }
    static inline void store_bf16(uint16_t* p, F v) {
        _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_bits(v), 16)));
    }
};
