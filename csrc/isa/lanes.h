// Sums and maxima over the lanes of an Isa that has no instructions for them; included inside its namespace, after F, I.

// Halves are added to halves, down to one lane; the same tree on every instruction set.
template <class Isa> struct Lanes {
    static inline float sum(F v) {
        alignas(64) float x[16];
        Isa::store(x, v);
        for (int half = 8; half; half /= 2)
            for (int i = 0; i < half; i++) x[i] += x[i + half];
        return x[0];
    }
    static inline float top(F v) {
        alignas(64) float x[16];
        Isa::store(x, v);
        for (int half = 8; half; half /= 2)
            for (int i = 0; i < half; i++) x[i] = x[i + half] > x[i] ? x[i + half] : x[i];
        return x[0];
    }
    // Of what is not negative: there the bits are in the order of the values, and NaN is above all.
    static inline float largest(F v) {
        alignas(64) float x[16];
        int32_t bits[16];
        Isa::store(x, v);
        __builtin_memcpy(bits, x, sizeof bits);
        for (int half = 8; half; half /= 2)
            for (int i = 0; i < half; i++) bits[i] = bits[i + half] > bits[i] ? bits[i + half] : bits[i];
        __builtin_memcpy(x, bits, sizeof(float));
        return x[0];
    }
    static inline int32_t sumi(I v) {
        alignas(64) int32_t x[16];
        Isa::storei(x, v);
        int32_t s = 0;
        for (int i = 0; i < 16; i++) s += x[i];
        return s;
    }
};
