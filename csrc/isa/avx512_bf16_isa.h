// AVX-512 with BF16 and VNNI; included inside a namespace, after avx512_ops.h.

struct Isa : Avx512 {
    static constexpr Act PAIR_ACT = ACT_BF16, KV_ACT = ACT_BF16;

    static inline I pair_weights(const uint8_t* p) { return _mm512_loadu_si512(p); }
    static inline I pair_act(const uint8_t* a, int k) {
        int32_t two;
        __builtin_memcpy(&two, a + 4 * k, 4);
        return _mm512_set1_epi32(two);
    }
    static inline F pair_dot(F c, I w, I a) { return _mm512_dpbf16_ps(c, (__m512bh)w, (__m512bh)a); }

    static inline I byte_weights(const uint8_t* p) { return _mm512_loadu_si512(p); }
    static inline I low_nibbles(const uint8_t* p) { return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(0x0f0f0f0f)); }
    static inline I high_nibbles(const uint8_t* p) {
        return _mm512_and_si512(_mm512_srli_epi32(_mm512_loadu_si512(p), 4), _mm512_set1_epi32(0x0f0f0f0f));
    }
    static inline I byte_act(const uint8_t* a) { return pair_act(a, 0); }
    static inline I byte_dot(I c, I w, I a) { return _mm512_dpbusd_epi32(c, w, a); }
};
