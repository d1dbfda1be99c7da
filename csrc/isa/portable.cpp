// Any processor: vectors of 16 in the compiler's own extension, which GCC and clang turn into what there is.
#include "../kernels.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions only
#endif

namespace forerun {
namespace {

typedef float F __attribute__((vector_size(64)));
typedef int32_t I __attribute__((vector_size(64)));
typedef uint32_t U __attribute__((vector_size(64)));

#include "lanes.h"

struct Isa : Lanes<Isa> {
    static constexpr int ROWS = 4;
    static constexpr Act PAIR_ACT = ACT_ROUNDED, KV_ACT = ACT_ROUNDED;

    template <class To, class From> static inline To bits(From v) {
        static_assert(sizeof(To) == sizeof(From));
        To out;
        __builtin_memcpy(&out, &v, sizeof out);
        return out;
    }
    static inline F zero() { return F{}; }
    static inline F set1(float x) { return F{} + x; }
    static inline F load(const float* p) { F v; __builtin_memcpy(&v, p, sizeof v); return v; }
    static inline void store(float* p, F v) { __builtin_memcpy(p, &v, sizeof v); }
    static inline F add(F a, F b) { return a + b; }
    static inline F sub(F a, F b) { return a - b; }
    static inline F mul(F a, F b) { return a * b; }
    static inline F div(F a, F b) { return a / b; }
    static inline F fma(F a, F b, F c) { return a * b + c; }  // two roundings: not every processor has the one
    static inline F choose(I mask, F a, F b) { return bits<F>((bits<I>(a) & mask) | (bits<I>(b) & ~mask)); }
    static inline F max(F a, F b) { return choose(a > b, a, b); }
    static inline F min(F a, F b) { return choose(a < b, a, b); }
    static inline F larger(F a, F b) { return choose(bits<I>(a) > bits<I>(b), a, b); }  // of what is not negative; NaN wins
    static inline F abs(F a) { return bits<F>(bits<I>(a) & 0x7fffffff); }
    static inline F rint(F a) { return from_int(round_to_int(a)); }
    static inline F power_of_two(F n) { return bits<F>((round_to_int(n) + 127) << 23); }
    static inline F keep_at_least(F x, F low, F v) { return bits<F>(bits<I>(v) & (x >= low)); }

    static inline I zeroi() { return I{}; }
    static inline I set1i(int32_t x) { return I{} + x; }
    static inline void storei(int32_t* p, I v) { __builtin_memcpy(p, &v, sizeof v); }
    static inline I addi(I a, I b) { return a + b; }
    static inline F from_int(I v) { return __builtin_convertvector(v, F); }
    static inline I round_to_int(F v) {  // to nearest even, for |v| below 2^22: the sum leaves no room for a fraction
        const F magic = set1(12582912.0f);
        return bits<I>(v + magic) - bits<I>(magic);
    }
    static inline void store_bytes(int8_t* p, I v) { for (int i = 0; i < 16; i++) p[i] = int8_t(v[i]); }
    static inline I load_u8(const uint8_t* p) { I v; for (int i = 0; i < 16; i++) v[i] = p[i]; return v; }
    static inline F load_s8(const int8_t* p) { I v; for (int i = 0; i < 16; i++) v[i] = p[i]; return from_int(v); }
    static inline I shift_right(I v, int n) { return bits<I>(bits<U>(v) >> n); }
    static inline float half(uint16_t h) {
        const uint32_t sign = uint32_t(h & 0x8000) << 16, rest = h & 0x7fff;
        float f;
        if (rest >= 0x7c00) {
            const uint32_t x = sign | 0x7f800000 | (rest & 0x3ff) << 13;
            __builtin_memcpy(&f, &x, 4);
            return f;
        }
        const uint32_t x = rest << 13;  // exponent too small by 112, and so right for subnormals too
        __builtin_memcpy(&f, &x, 4);
        f *= 5.192296858534828e33f;  // 2^112
        return sign ? -f : f;
    }
    static inline F load_half(const uint16_t* p) { F v; for (int i = 0; i < 16; i++) v[i] = half(p[i]); return v; }

    using Table = const float*;
    static inline Table table16(const float* p) { return p; }
    static inline F lookup(Table t, I code) { F v; for (int i = 0; i < 16; i++) v[i] = t[code[i] & 15]; return v; }

    static inline U bf16_bits(F v) {
        U x = bits<U>(v);
        U up = x + ((x >> 16 & 1) + 0x7fff);
        I nan = v != v;
        return (bits<U>(nan) & (x | 0x400000)) | (~bits<U>(nan) & up);
    }
    static inline F rounded(F v) { return bits<F>(bf16_bits(v) & 0xffff0000u); }
    static inline void store_bf16(uint16_t* p, F v) {
        U x = bf16_bits(v) >> 16;
        for (int i = 0; i < 16; i++) p[i] = uint16_t(x[i]);
    }

    struct Pair { F even, odd; };
    static inline U load_words(const uint8_t* p) { U w; __builtin_memcpy(&w, p, sizeof w); return w; }
    static inline Pair pair_weights(const uint8_t* p) { U w = load_words(p); return {bits<F>(w << 16), bits<F>(w & 0xffff0000u)}; }
    static inline Pair pair_act(const uint8_t* a, int k) { return {set1(((const float*)a)[2 * k]), set1(((const float*)a)[2 * k + 1])}; }
    static inline F pair_dot(F c, Pair w, Pair a) { return fma(w.odd, a.odd, fma(w.even, a.even, c)); }

    struct Bytes { I x[4]; };
    static inline Bytes split(U w) { return {{bits<I>(w & 255), bits<I>(w >> 8 & 255), bits<I>(w >> 16 & 255), bits<I>(w >> 24)}}; }
    static inline Bytes byte_weights(const uint8_t* p) { return split(load_words(p)); }
    static inline Bytes low_nibbles(const uint8_t* p) { return split(load_words(p) & 0x0f0f0f0fu); }
    static inline Bytes high_nibbles(const uint8_t* p) { return split(load_words(p) >> 4 & 0x0f0f0f0fu); }
    static inline const int8_t* byte_act(const uint8_t* a) { return (const int8_t*)a; }
    static inline I byte_dot(I c, const Bytes& w, const int8_t* a) {
        return c + w.x[0] * int32_t(a[0]) + w.x[1] * int32_t(a[1]) + w.x[2] * int32_t(a[2]) + w.x[3] * int32_t(a[3]);
    }
};

#include "../kernels_math.h"
#include "../kernels_impl.h"

}  // namespace

const Kernels* kernels_portable() {
    static const Kernels kernels = table("portable");
    return &kernels;
}

}  // namespace forerun
