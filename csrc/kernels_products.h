// Rows of activations times packed weights, a strip after another; included by kernels_impl.h.

template <int MR> struct Sums {
    F a[MR], b[MR];
};

// 0.5 x (1 + tanh(u)) is x / (1 + e^-2u), of u = sqrt(2 / pi) (x + 0.044715 x^3).
inline F gelu(F x) {
    const F u = Isa::mul(x, Isa::fma(Isa::mul(x, x), Isa::set1(0.0356774081363f), Isa::set1(0.797884560803f)));
    return Isa::div(x, Isa::add(Isa::set1(1.0f), exp16(Isa::mul(u, Isa::set1(-2.0f)))));
}

inline F sigmoid_times(F x) { return Isa::div(x, Isa::add(Isa::set1(1.0f), exp16(Isa::sub(Isa::zero(), x)))); }

// Adds the bias and does what follows the product.
template <int MR> inline void finish(const Product& job, int strip, int row, const Sums<MR>& sums) {
    F bias0 = Isa::zero(), bias1 = Isa::zero();
    if (job.bias) {
        bias0 = Isa::load(job.bias + strip * STRIP);
        bias1 = Isa::load(job.bias + strip * STRIP + PANEL);
    }
    for (int m = 0; m < MR; m++) {
        float* out = job.out + size_t(row + m) * job.out_stride;
        F x = job.bias ? Isa::add(sums.a[m], bias0) : sums.a[m];
        F y = job.bias ? Isa::add(sums.b[m], bias1) : sums.b[m];
        if (job.then == SILU || job.then == GELU) {
            Isa::store(out + strip * PANEL, Isa::mul(job.then == SILU ? sigmoid_times(x) : gelu(x), y));
            continue;
        }
        out += strip * STRIP;
        if (job.then == ADD_SILU) {
            x = sigmoid_times(x);
            y = sigmoid_times(y);
        }
        if (job.then == ADD || job.then == ADD_SILU) {
            x = Isa::add(Isa::load(out), x);
            y = Isa::add(Isa::load(out + PANEL), y);
        }
        Isa::store(out, x);
        Isa::store(out + PANEL, y);
    }
}

// Memory is asked for bytes before they are needed: by the first group of rows, a little ahead of itself, past the edge
// of a page. The groups after it find the strip in the cache.
struct Ahead {
    size_t distance;

    static inline Ahead of_group(int group) { return {group ? 0 : size_t(2048)}; }
    inline void ask(const uint8_t* w) const {
        __builtin_prefetch(w + distance);
        __builtin_prefetch(w + distance + 64);
    }
};

// Floats, one input at a time.
struct F32Steps {
    static int count(int k) { return k; }
    static F weights(const uint8_t* w) { return Isa::load((const float*)w); }
    static F act(const uint8_t* a, int k) { return Isa::set1(((const float*)a)[k]); }
    static F dot(F c, F w, F x) { return Isa::fma(w, x, c); }
};

// bfloat16, two inputs at a time.
struct BF16Steps {
    static int count(int k) { return k / 2; }
    static auto weights(const uint8_t* w) { return Isa::pair_weights(w); }
    static auto act(const uint8_t* a, int k) { return Isa::pair_act(a, k); }
    template <class W, class A> static F dot(F c, W w, A x) { return Isa::pair_dot(c, w, x); }
};

template <class Steps> struct FloatProduct {
    static constexpr int MOST = Isa::ROWS;
    template <int MR> static inline Sums<MR> sums(const Product& job, const uint8_t* w, int row, Ahead ahead) {
        Sums<MR> c;
        for (int m = 0; m < MR; m++) c.a[m] = c.b[m] = Isa::zero();
        const uint8_t* a = job.a.data + row * job.a.stride;
        const int steps = Steps::count(job.a.k);
        for (int k = 0; k < steps; k++, w += 128) {
            ahead.ask(w);
            auto w0 = Steps::weights(w), w1 = Steps::weights(w + 64);
            for (int m = 0; m < MR; m++) {
                auto x = Steps::act(a + m * job.a.stride, k);
                c.a[m] = Steps::dot(c.a[m], w0, x);
                c.b[m] = Steps::dot(c.b[m], w1, x);
            }
        }
        return c;
    }
};

// Products of whole numbers hold sums of two kinds at a time, so that registers suffice for fewer rows.
constexpr int WHOLE_ROWS = Isa::ROWS < 8 ? Isa::ROWS : 8;

// Groups of 64 inputs share a scale of the activations: an exact integer product for each, then one float chain.
struct Int8Product {
    static constexpr int MOST = WHOLE_ROWS;
    template <int MR> static inline Sums<MR> sums(const Product& job, const uint8_t* w, int row, Ahead ahead) {
        Sums<MR> c;
        for (int m = 0; m < MR; m++) c.a[m] = c.b[m] = Isa::zero();
        const uint8_t* a = job.a.data + row * job.a.stride;
        for (int group = 0; group < job.a.per; group++, a += K_STEP) {
            const int at = row * job.a.per + group;
            I c0[MR], c1[MR];  // bytes are q + 128, so the sums begin at -128 times the activations' own sum
            for (int m = 0; m < MR; m++) c0[m] = c1[m] = Isa::set1i(-128 * job.a.sum[at + m * job.a.per]);
            for (int k = 0; k < K_STEP; k += 4, w += 128) {
                ahead.ask(w);
                auto w0 = Isa::byte_weights(w), w1 = Isa::byte_weights(w + 64);
                for (int m = 0; m < MR; m++) {
                    auto x = Isa::byte_act(a + m * job.a.stride + k);
                    c0[m] = Isa::byte_dot(c0[m], w0, x);
                    c1[m] = Isa::byte_dot(c1[m], w1, x);
                }
            }
            for (int m = 0; m < MR; m++) close_group(job, at + m * job.a.per, c0[m], c1[m], c.a[m], c.b[m]);
        }
        const F s0 = Isa::load((const float*)w), s1 = Isa::load((const float*)w + PANEL);
        for (int m = 0; m < MR; m++) c.a[m] = Isa::mul(c.a[m], s0), c.b[m] = Isa::mul(c.b[m], s1);
        return c;
    }

    static inline void close_group(const Product& job, int at, I c0, I c1, F& a, F& b) {
        const F scale = Isa::set1(job.a.scale[at]);
        a = Isa::fma(Isa::from_int(c0), scale, a);
        b = Isa::fma(Isa::from_int(c1), scale, b);
    }
};

// Blocks of 32 bytes: an exact integer product for each, then one float chain per output, block after block.
struct Q8Product {
    static constexpr int MOST = WHOLE_ROWS;
    template <int MR> static inline Sums<MR> sums(const Product& job, const uint8_t* w, int row, Ahead ahead) {
        Sums<MR> c;
        for (int m = 0; m < MR; m++) c.a[m] = c.b[m] = Isa::zero();
        const uint8_t* a = job.a.data + row * job.a.stride;
        for (int block = 0; block < job.a.per; block++, w += unit_bytes(Q8_0), a += BLOCK) {
            const int at = row * job.a.per + block;
            const uint8_t* codes = w + 64;
            for (size_t near = 0; near < unit_bytes(Q8_0); near += 128) ahead.ask(w + near);
            I c0[MR], c1[MR];
            for (int m = 0; m < MR; m++) c0[m] = c1[m] = Isa::set1i(-128 * job.a.sum[at + m * job.a.per]);
            for (int g = 0; g < 8; g++) {
                auto w0 = Isa::byte_weights(codes + 128 * g), w1 = Isa::byte_weights(codes + 128 * g + 64);
                for (int m = 0; m < MR; m++) {
                    auto x = Isa::byte_act(a + m * job.a.stride + 4 * g);
                    c0[m] = Isa::byte_dot(c0[m], w0, x);
                    c1[m] = Isa::byte_dot(c1[m], w1, x);
                }
            }
            const F d0 = Isa::load_half((const uint16_t*)w), d1 = Isa::load_half((const uint16_t*)w + PANEL);
            for (int m = 0; m < MR; m++) close_block(job, at + m * job.a.per, d0, d1, c0[m], c1[m], c.a[m], c.b[m]);
        }
        return c;
    }

    static inline void close_block(const Product& job, int at, F d0, F d1, I c0, I c1, F& a, F& b) {
        const F scale = Isa::set1(job.a.scale[at]);
        a = Isa::fma(Isa::from_int(c0), Isa::mul(d0, scale), a);
        b = Isa::fma(Isa::from_int(c1), Isa::mul(d1, scale), b);
    }
};

// Blocks of 32 four-bit weights. Each half of a block has a scale of the activations of its own, since one large
// activation costs its neighbours their bits, and one scale a block cost SmolLM2 more perplexity than was to be lost.
template <Format FORMAT> struct Q4Product {
    static constexpr int MOST = WHOLE_ROWS, ZERO = FORMAT == Q4_0 ? 8 : 0;
    static constexpr size_t CODES = FORMAT == Q4_1 ? 128 : 64;  // bytes before them

    struct Scales {
        F d0, d1, m0, m1;
        inline explicit Scales(const uint8_t* w) {
            d0 = Isa::load_half((const uint16_t*)w), d1 = Isa::load_half((const uint16_t*)w + PANEL);
            if constexpr (FORMAT == Q4_1) m0 = Isa::load_half((const uint16_t*)(w + 64)), m1 = Isa::load_half((const uint16_t*)(w + 64) + PANEL);
        }
    };

    template <int MR> static inline Sums<MR> sums(const Product& job, const uint8_t* w, int row, Ahead ahead) {
        Sums<MR> c;
        for (int m = 0; m < MR; m++) c.a[m] = c.b[m] = Isa::zero();
        const uint8_t* a = job.a.data + row * job.a.stride;
        for (int half = 0; half < job.a.per; half += 2, w += unit_bytes(FORMAT), a += BLOCK) {
            const int at = row * job.a.per + half;
            const uint8_t* codes = w + CODES;
            for (size_t near = 0; near < unit_bytes(FORMAT); near += 128) ahead.ask(w + near);
            I low0[MR], low1[MR], high0[MR], high1[MR];
            for (int m = 0; m < MR; m++) {
                low0[m] = low1[m] = start(job, at + m * job.a.per);
                high0[m] = high1[m] = start(job, at + m * job.a.per + 1);
            }
            for (int g = 0; g < 4; g++) {
                auto w0 = Isa::low_nibbles(codes + 128 * g), w1 = Isa::low_nibbles(codes + 128 * g + 64);
                for (int m = 0; m < MR; m++) {
                    auto x = Isa::byte_act(a + m * job.a.stride + 4 * g);
                    low0[m] = Isa::byte_dot(low0[m], w0, x);
                    low1[m] = Isa::byte_dot(low1[m], w1, x);
                }
            }
            for (int g = 0; g < 4; g++) {
                auto w0 = Isa::high_nibbles(codes + 128 * g), w1 = Isa::high_nibbles(codes + 128 * g + 64);
                for (int m = 0; m < MR; m++) {
                    auto x = Isa::byte_act(a + m * job.a.stride + 4 * g + 16);
                    high0[m] = Isa::byte_dot(high0[m], w0, x);
                    high1[m] = Isa::byte_dot(high1[m], w1, x);
                }
            }
            const Scales scales(w);
            for (int m = 0; m < MR; m++) close_block(job, at + m * job.a.per, scales, low0[m], low1[m], high0[m], high1[m], c.a[m], c.b[m]);
        }
        return c;
    }

    static inline I start(const Product& job, int at) { return ZERO ? Isa::set1i(-ZERO * job.a.sum[at]) : Isa::zeroi(); }

    static inline void close_block(const Product& job, int at, const Scales& w, I low0, I low1, I high0, I high1, F& a, F& b) {
        const float* scale = job.a.scale + at;
        const F low = Isa::set1(scale[0]), high = Isa::set1(scale[1]);
        a = Isa::fma(Isa::fma(Isa::from_int(high0), high, Isa::mul(Isa::from_int(low0), low)), w.d0, a);
        b = Isa::fma(Isa::fma(Isa::from_int(high1), high, Isa::mul(Isa::from_int(low1), low)), w.d1, b);
        if constexpr (FORMAT == Q4_1) {
            const F sum = Isa::set1(scale[0] * float(job.a.sum[at]) + scale[1] * float(job.a.sum[at + 1]));
            a = Isa::fma(w.m0, sum, a);
            b = Isa::fma(w.m1, sum, b);
        }
    }
};

struct NF4Product {
    static constexpr int MOST = WHOLE_ROWS;
    template <int MR> static inline Sums<MR> sums(const Product& job, const uint8_t* w, int row, Ahead ahead) {
        Sums<MR> c;
        for (int m = 0; m < MR; m++) c.a[m] = c.b[m] = Isa::zero();
        const float* a = (const float*)(job.a.data + row * job.a.stride);
        const size_t stride = job.a.stride / sizeof(float);
        const auto table = Isa::table16(NF4_VALUES);
        for (int b = 0; b < job.a.k / NF4_BLOCK; b++, a += NF4_BLOCK) {
            F s0 = Isa::load((const float*)w), s1 = Isa::load((const float*)w + PANEL);
            w += 128;
            F c0[MR], c1[MR];
            for (size_t near = 0; near < unit_bytes(NF4); near += 128) ahead.ask(w + near);
            for (int m = 0; m < MR; m++) c0[m] = c1[m] = Isa::zero();
            for (int k = 0; k < NF4_BLOCK; k += 2, w += 32) {
                I code0 = Isa::load_u8(w), code1 = Isa::load_u8(w + 16);
                F even0 = Isa::lookup(table, code0), even1 = Isa::lookup(table, code1);
                F odd0 = Isa::lookup(table, Isa::shift_right(code0, 4)), odd1 = Isa::lookup(table, Isa::shift_right(code1, 4));
                for (int m = 0; m < MR; m++) {
                    F x = Isa::set1(a[m * stride + k]), y = Isa::set1(a[m * stride + k + 1]);
                    c0[m] = Isa::fma(odd0, y, Isa::fma(even0, x, c0[m]));
                    c1[m] = Isa::fma(odd1, y, Isa::fma(even1, x, c1[m]));
                }
            }
            for (int m = 0; m < MR; m++) {
                c.a[m] = Isa::fma(c0[m], s0, c.a[m]);
                c.b[m] = Isa::fma(c1[m], s1, c.b[m]);
            }
        }
        return c;
    }
};

template <class P, int MR> inline void rows_of(const Product& job, int strip, const uint8_t* w, int& row, int& group) {
    if constexpr (MR <= P::MOST)
        for (; row + MR <= job.rows; row += MR, group++)
            finish<MR>(job, strip, row, P::template sums<MR>(job, w, row, Ahead::of_group(group)));
}

// A dozen rows and fewer are one group where registers suffice: a strip then comes from memory while all is computed.
template <class P> void product(const Product& job, int first, int end) {
    for (int strip = first; strip < end; strip++) {
        const uint8_t* w = job.w + size_t(strip) * job.strip_bytes;
        int row = 0, group = 0;
        rows_of<P, 12>(job, strip, w, row, group);
        if (!row) {
            rows_of<P, 11>(job, strip, w, row, group);
            rows_of<P, 10>(job, strip, w, row, group);
            rows_of<P, 9>(job, strip, w, row, group);
        }
        rows_of<P, 8>(job, strip, w, row, group);
        rows_of<P, 4>(job, strip, w, row, group);
        rows_of<P, 2>(job, strip, w, row, group);
        rows_of<P, 1>(job, strip, w, row, group);
    }
}
