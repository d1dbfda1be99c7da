// The kernels, written once over an instruction set `Isa`; each isa/*.cpp includes this inside its own namespace.
//
// No standard library here: a template shared between files of different compiler flags would be merged by the linker,
// and the processor might meet instructions that it does not have.
//
// An Isa provides F (16 floats) and I (16 ints) with their arithmetic, and three kinds of weights that are loaded once
// and used for many rows: PairW (16 outputs x 2 bfloat16), ByteW (16 outputs x 4 bytes), plain F. `PairA`, `ByteA` are
// the matching activations, broadcast to all outputs.

template <int MR> struct Sums {
    F a[MR], b[MR];
};

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
        if (job.then == SILU) {
            Isa::store(out + strip * PANEL, Isa::mul(sigmoid_times(x), y));
            continue;
        }
        out += strip * STRIP;
        if (job.then == ADD) {
            x = Isa::add(Isa::load(out), x);
            y = Isa::add(Isa::load(out + PANEL), y);
        }
        Isa::store(out, x);
        Isa::store(out + PANEL, y);
    }
}

// Memory is asked for bytes before they are needed. A group of rows that is alone with its strip asks a little ahead of
// itself, past the edge of a page. Two groups and more compute longer than the memory needs for a strip, if it works all
// the time: the first two ask for the next strip meanwhile, one line of two each, so that requests do not queue up before
// the loads of the strip at hand.
struct Ahead {
    size_t even, odd;  // distances

    static inline Ahead alone() { return {2048, 2048 + 64}; }
    static inline Ahead of_group(int group, size_t strip) {
        const size_t line = group < 2 ? strip + 64 * size_t(group) : 0;
        return {line, line};
    }
    inline void ask(const uint8_t* w) const {
        __builtin_prefetch(w + even);
        __builtin_prefetch(w + odd);
    }
};

struct F32Product {
    static constexpr int MOST = Isa::ROWS;
    template <int MR> static inline Sums<MR> sums(const Product& job, const uint8_t* w, int row, Ahead ahead) {
        Sums<MR> c;
        for (int m = 0; m < MR; m++) c.a[m] = c.b[m] = Isa::zero();
        const float* a = (const float*)(job.a.data + row * job.a.stride);
        const size_t stride = job.a.stride / sizeof(float);
        for (int k = 0; k < job.a.k; k++, w += 128) {
            ahead.ask(w);
            F w0 = Isa::load((const float*)w), w1 = Isa::load((const float*)w + PANEL);
            for (int m = 0; m < MR; m++) {
                F x = Isa::set1(a[m * stride + k]);
                c.a[m] = Isa::fma(w0, x, c.a[m]);
                c.b[m] = Isa::fma(w1, x, c.b[m]);
            }
        }
        return c;
    }
};

struct BF16Product {
    static constexpr int MOST = Isa::ROWS;
    template <int MR> static inline Sums<MR> sums(const Product& job, const uint8_t* w, int row, Ahead ahead) {
        Sums<MR> c;
        for (int m = 0; m < MR; m++) c.a[m] = c.b[m] = Isa::zero();
        const uint8_t* a = job.a.data + row * job.a.stride;
        const int pairs = job.a.k / 2;
        for (int k = 0; k < pairs; k++, w += 128) {
            ahead.ask(w);
            auto w0 = Isa::pair_weights(w), w1 = Isa::pair_weights(w + 64);
            for (int m = 0; m < MR; m++) {
                auto x = Isa::pair_act(a + m * job.a.stride, k);
                c.a[m] = Isa::pair_dot(c.a[m], w0, x);
                c.b[m] = Isa::pair_dot(c.b[m], w1, x);
            }
        }
        return c;
    }
};

// Groups of 64 inputs share a scale of the activations: an exact integer product for each, then one float chain.
struct Int8Product {
    static constexpr int MOST = Isa::ROWS;
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
    static constexpr int MOST = Isa::ROWS;
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
// activation costs its neighbours their bits: with one scale a block SmolLM2 lost twice as much perplexity.
template <Format FORMAT> struct Q4Product {
    static constexpr int MOST = Isa::ROWS, ZERO = FORMAT == Q4_0 ? 8 : 0;
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
    static constexpr int MOST = Isa::ROWS;
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
        for (; row + MR <= job.rows; row += MR, group++) {
            const bool alone = !row && job.rows == MR;
            const Ahead ahead = alone ? Ahead::alone() : Ahead::of_group(group, job.strip_bytes);
            finish<MR>(job, strip, row, P::template sums<MR>(job, w, row, ahead));
        }
}

template <class P> void product(const Product& job, int first, int end) {
    for (int strip = first; strip < end; strip++) {
        const uint8_t* w = job.w + size_t(strip) * job.strip_bytes;
        int row = 0, group = 0;
        rows_of<P, 8>(job, strip, w, row, group);
        rows_of<P, 4>(job, strip, w, row, group);
        rows_of<P, 2>(job, strip, w, row, group);
        rows_of<P, 1>(job, strip, w, row, group);
    }
}

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

// Rounds `count` values (a multiple of 16) to int8 with one scale; returns the sum of the codes.
inline int32_t to_bytes(const RowValues& values, int first, int count, int8_t* out, float* scale) {
    F top = Isa::zero();
    for (int i = first; i < first + count; i += 16) top = Isa::max(top, Isa::abs(values.at(i)));
    const float most = Isa::top(top);
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

// Queries times key tiles. QB queries and TB tiles at a time, to have enough chains in flight.
template <KVType TYPE, int QB, int TB> inline void scores_block(const Scores& job, int query, int tile) {
    F c[QB][TB];
    for (int q = 0; q < QB; q++)
        for (int t = 0; t < TB; t++) c[q][t] = Isa::zero();
    const uint8_t* q0 = job.q + query * job.q_stride;
    if constexpr (TYPE == KV_BF16) {
        for (int d = 0; d < job.dim / 2; d++)
            for (int t = 0; t < TB; t++) {
                auto key = Isa::pair_weights(job.keys[tile + t] + 64 * d);
                for (int q = 0; q < QB; q++) c[q][t] = Isa::pair_dot(c[q][t], key, Isa::pair_act(q0 + q * job.q_stride, d));
            }
    } else {
        for (int d = 0; d < job.dim; d++)
            for (int t = 0; t < TB; t++) {
                F key = TYPE == KV_F32 ? Isa::load((const float*)job.keys[tile + t] + 16 * d)
                                       : Isa::load_s8((const int8_t*)job.keys[tile + t] + 16 * d);
                for (int q = 0; q < QB; q++)
                    c[q][t] = Isa::fma(key, Isa::set1(((const float*)(q0 + q * job.q_stride))[d]), c[q][t]);
            }
    }
    for (int q = 0; q < QB; q++)
        for (int t = 0; t < TB; t++) {
            if constexpr (TYPE == KV_INT8) c[q][t] = Isa::mul(c[q][t], Isa::load(job.scales[tile + t]));
            Isa::store(job.out + (query + q) * job.out_stride + 16 * (tile + t), c[q][t]);
        }
}

template <KVType TYPE, int QB, int TB> inline void scores_rows(const Scores& job, int query) {
    int t = 0;
    for (; t + TB <= job.tiles; t += TB) scores_block<TYPE, QB, TB>(job, query, t);
    if constexpr (TB > 1)
        for (; t < job.tiles; t++) scores_block<TYPE, QB, 1>(job, query, t);
}

template <KVType TYPE> void scores(const Scores& job) {
    int q = 0;
    for (; Isa::ROWS >= 8 && q + 8 <= job.queries; q += 8) scores_rows<TYPE, 8, 1>(job, q);
    for (; q + 4 <= job.queries; q += 4) scores_rows<TYPE, 4, Isa::ROWS >= 8 ? 2 : 1>(job, q);
    for (; q + 2 <= job.queries; q += 2) scores_rows<TYPE, 2, Isa::ROWS >= 8 ? 4 : 2>(job, q);
    for (; q < job.queries; q++) scores_rows<TYPE, 1, 4>(job, q);
}

float softmax(const Softmax& job) {
    const int first = job.low / 16, last = (job.end + 15) / 16;
    const F scale = Isa::set1(job.scale), never = Isa::set1(-__builtin_inff());
    F top = never;
    for (int t = first; t < last; t++) {
        float* s = job.scores + 16 * t;
        for (int i = 16 * t; i < job.low; i++) s[i - 16 * t] = -__builtin_inff();
        for (int i = job.end; i < 16 * t + 16; i++) s[i - 16 * t] = -__builtin_inff();
        top = Isa::max(top, Isa::load(s));
    }
    const F most = Isa::set1(Isa::top(top));
    const Act act = job.type == KV_BF16 ? Isa::KV_ACT : ACT_F32;
    const size_t size = act_bytes(act);
    F total = Isa::zero();
    for (int t = 0; t < job.tiles; t++) {
        F p = Isa::zero();
        if (t >= first && t < last) {
            p = exp16(Isa::mul(Isa::sub(Isa::load(job.scores + 16 * t), most), scale));
            total = Isa::add(total, p);
            if (job.type == KV_INT8) p = Isa::mul(p, Isa::load(job.scales[t]));
        }
        put(act, job.p + 16 * t * size, 0, p);
    }
    return Isa::sum(total);
}

// Weights times value tiles: QB queries and DB vectors of 16 dimensions at a time, all tiles in one go.
template <KVType TYPE, int QB, int DB> inline void mix_block(const Mix& job, int query, int dim) {
    F c[QB][DB];
    for (int q = 0; q < QB; q++)
        for (int d = 0; d < DB; d++) c[q][d] = Isa::load(job.out + (query + q) * job.out_stride + dim + 16 * d);
    const uint8_t* p0 = job.p + query * job.p_stride;
    for (int t = 0; t < job.tiles; t++) {
        const uint8_t* values = job.values[t];
        if constexpr (TYPE == KV_BF16) {
            for (int pair = 0; pair < 8; pair++)
                for (int d = 0; d < DB; d++) {
                    auto value = Isa::pair_weights(values + 4 * (pair * job.dims + dim + 16 * d));
                    for (int q = 0; q < QB; q++)
                        c[q][d] = Isa::pair_dot(c[q][d], value, Isa::pair_act(p0 + q * job.p_stride, 8 * t + pair));
                }
        } else {
            for (int key = 0; key < 16; key++)
                for (int d = 0; d < DB; d++) {
                    const int at = key * job.dims + dim + 16 * d;
                    F value = TYPE == KV_F32 ? Isa::load((const float*)values + at) : Isa::load_s8((const int8_t*)values + at);
                    for (int q = 0; q < QB; q++)
                        c[q][d] = Isa::fma(value, Isa::set1(((const float*)(p0 + q * job.p_stride))[16 * t + key]), c[q][d]);
                }
        }
    }
    for (int q = 0; q < QB; q++)
        for (int d = 0; d < DB; d++) Isa::store(job.out + (query + q) * job.out_stride + dim + 16 * d, c[q][d]);
}

template <KVType TYPE, int QB> inline void mix_rows(const Mix& job, int query) {
    int d = 0;
    for (; d + 64 <= job.dims; d += 64) mix_block<TYPE, QB, 4>(job, query, d);
    for (; d < job.dims; d += 16) mix_block<TYPE, QB, 1>(job, query, d);
}

template <KVType TYPE> void mix(const Mix& job) {
    int q = 0;
    for (; Isa::ROWS >= 8 && q + 6 <= job.queries; q += 6) mix_rows<TYPE, 6>(job, q);
    for (; Isa::ROWS >= 8 && q + 4 <= job.queries; q += 4) mix_rows<TYPE, 4>(job, q);
    for (; q + 2 <= job.queries; q += 2) mix_rows<TYPE, 2>(job, q);
    for (; q < job.queries; q++) mix_rows<TYPE, 1>(job, q);
}

inline Kernels table(const char* name) {
    Kernels t{};
    t.name = name;
    const Act acts[FORMATS] = {ACT_F32, Isa::PAIR_ACT, ACT_GROUP8, ACT_BLOCK8, ACT_HALF8, ACT_HALF8, ACT_F32};
    for (int f = 0; f < FORMATS; f++) t.act[f] = acts[f];
    t.kv_act = Isa::KV_ACT;
    t.product[F32] = product<F32Product>;
    t.product[BF16] = product<BF16Product>;
    t.product[INT8] = product<Int8Product>;
    t.product[Q8_0] = product<Q8Product>;
    t.product[Q4_0] = product<Q4Product<Q4_0>>;
    t.product[Q4_1] = product<Q4Product<Q4_1>>;
    t.product[NF4] = product<NF4Product>;
    t.pack = pack;
    t.norm = norm;
    t.pack_query = pack_query;
    t.rotate = rotate;
    t.scores[KV_F32] = scores<KV_F32>;
    t.scores[KV_BF16] = scores<KV_BF16>;
    t.scores[KV_INT8] = scores<KV_INT8>;
    t.softmax = softmax;
    t.mix[KV_F32] = mix<KV_F32>;
    t.mix[KV_BF16] = mix<KV_BF16>;
    t.mix[KV_INT8] = mix<KV_INT8>;
    return t;
}
