// What looks at one row: norms, the packing of activations, rotation; included by kernels_impl.h.

inline float inverse_rms(const float* x, int n, float eps) {
    F s = Isa::zero();
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        F v = Isa::load(x + i);
        s = Isa::fma(v, v, s);
    }
    float total = Isa::sum(s);
    for (; i < n; i++) total += x[i] * x[i];
    return 1.0f / __builtin_sqrtf(total / float(n) + eps);
}

void norm(const float* x, const float* weight, int n, float eps, float* out) {
    const float inverse = inverse_rms(x, n, eps);
    const F scale = Isa::set1(inverse);
    int i = 0;
    for (; i + 16 <= n; i += 16) Isa::store(out + i, Isa::mul(Isa::mul(Isa::load(x + i), scale), Isa::load(weight + i)));
    for (; i < n; i++) out[i] = x[i] * inverse * weight[i];
}

// The values of one row, 16 at a time, normalised if asked; zero past n.
struct RowValues {
    const float* x;
    const float* weight;
    int n;
    float inverse;

    inline F at(int i) const {
        if (i + 16 <= n) {
            F v = Isa::load(x + i);
            return weight ? Isa::mul(Isa::mul(v, Isa::set1(inverse)), Isa::load(weight + i)) : v;
        }
        alignas(64) float rest[16] = {};
        for (int j = 0; i + j < n; j++) rest[j] = weight ? x[i + j] * inverse * weight[i + j] : x[i + j];
        return Isa::load(rest);
    }
};

// Rounds `count` values (a multiple of 16) to int8 with one scale; returns the sum of the codes. Where a value is not
// finite there are no codes, and the scale is NaN, which every product then is.
inline int32_t to_bytes(const RowValues& values, int first, int count, int8_t* out, float* scale) {
    F top = Isa::zero();
    for (int i = first; i < first + count; i += 16) top = Isa::larger(top, Isa::abs(values.at(i)));
    const float most = Isa::largest(top);
    if (!(most < __builtin_inff())) {
        *scale = __builtin_nanf("");
        __builtin_memset(out, 0, size_t(count));
        return 0;
    }
    *scale = most / 127.0f;
    const F inverse = Isa::set1(most > 0 ? 127.0f / most : 0.0f);
    I total = Isa::zeroi();
    for (int i = 0; i < count; i += 16) {
        I codes = Isa::round_to_int(Isa::mul(values.at(first + i), inverse));
        Isa::store_bytes(out + i, codes);
        total = Isa::addi(total, codes);
    }
    return Isa::sumi(total);
}

inline void put(Act act, uint8_t* out, int i, F v) {
    if (act == ACT_F32) Isa::store((float*)out + i, v);
    if (act == ACT_ROUNDED) Isa::store((float*)out + i, Isa::rounded(v));
    if (act == ACT_BF16) Isa::store_bf16((uint16_t*)out + i, v);
}

void pack(const float* x, const float* weight, int n, float eps, const Packed& to, int row) {
    const RowValues values{x, weight, n, weight ? inverse_rms(x, n, eps) : 1.0f};
    uint8_t* out = to.data + row * to.stride;
    if (const int group = act_group(to.act)) {
        for (int b = 0, at = row * to.per; b < to.per; b++, at++)
            to.sum[at] = to_bytes(values, b * group, group, (int8_t*)out + b * group, to.scale + at);
    } else {
        for (int i = 0; i < to.k; i += 16) put(to.act, out, i, values.at(i));
    }
}

void pack_query(Act act, const float* x, int n, uint8_t* out) {
    const RowValues values{x, nullptr, n, 1.0f};
    for (int i = 0; i < n; i += 16) put(act, out, i, values.at(i));
}

// x[i], x[i + half] turned by angle i.
void rotate(float* x, const float* cos, const float* sin, int half) {
    float* y = x + half;
    int i = 0;
    for (; i + 16 <= half; i += 16) {
        F a = Isa::load(x + i), b = Isa::load(y + i), c = Isa::load(cos + i), s = Isa::load(sin + i);
        Isa::store(x + i, Isa::sub(Isa::mul(a, c), Isa::mul(b, s)));
        Isa::store(y + i, Isa::add(Isa::mul(b, c), Isa::mul(a, s)));
    }
    for (; i < half; i++) {
        const float a = x[i], b = y[i];
        x[i] = a * cos[i] - b * sin[i];
        y[i] = b * cos[i] + a * sin[i];
    }
}
