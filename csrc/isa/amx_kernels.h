// Products on AMX tiles: 16 rows times 16 outputs in one instruction. Included after kernels_impl.h, inside a namespace;
// TILE_* are the instructions, or their emulation.
//
// A strip's two panels are two B tiles as they lie in memory, up to 32 rows of activations two A tiles. Sums of bytes are
// exact, so few rows may take the plain kernels and get the same bits; bfloat16 always takes the tiles, one row too.

struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
};

// Tiles 0..3 hold sums (two row groups x two panels), 4 and 5 rows of activations, 6 and 7 panels of weights.
inline void configure(int rows0, int rows1, int row_bytes, int weight_rows) {
    TileConfig c;
    for (int t = 0; t < 8; t++) c.bytes[t] = 64;
    c.rows[0] = c.rows[1] = c.rows[4] = uint8_t(rows0);
    c.rows[2] = c.rows[3] = c.rows[5] = uint8_t(rows1 ? rows1 : 1);
    c.rows[6] = c.rows[7] = uint8_t(weight_rows);
    c.bytes[4] = c.bytes[5] = uint16_t(row_bytes);
    TILE_CONFIGURE(&c);
}

struct RowGroup {
    int first, count, rows0, rows1;
    RowGroup(int row, int rows) : first(row), count(rows - row < 32 ? rows - row : 32), rows0(count < 16 ? count : 16), rows1(count - rows0) {}
};

template <class T> struct alignas(64) Square {  // the sums of up to 32 rows of a strip
    T at[32][STRIP];
};

inline void clear(Square<float>& sums, int rows) {
    for (int m = 0; m < rows; m++)
        for (int panel = 0; panel < STRIP; panel += PANEL) Isa::store(sums.at[m] + panel, Isa::zero());
}

#define STORE_SUMS(square, two)                                    \
    do {                                                           \
        TILE_STORE(0, &(square).at[0][0], STRIP * 4);              \
        TILE_STORE(1, &(square).at[0][PANEL], STRIP * 4);          \
        if (two) {                                                 \
            TILE_STORE(2, &(square).at[16][0], STRIP * 4);         \
            TILE_STORE(3, &(square).at[16][PANEL], STRIP * 4);     \
        }                                                          \
    } while (0)

#define ZERO_SUMS(two)                     \
    do {                                   \
        TILE_ZERO(0);                      \
        TILE_ZERO(1);                      \
        if (two) {                         \
            TILE_ZERO(2);                  \
            TILE_ZERO(3);                  \
        }                                  \
    } while (0)

inline void ask_tiles(const uint8_t* w) {
    for (int line = 0; line < 32; line++) __builtin_prefetch(w + 4096 + 64 * line);
}

// Runs `strip_of(strip, group)` over strips and groups of rows; tiles are configured anew only where the rows change.
template <class Body> inline void over_tiles(const Product& job, int first, int end, int row_bytes, int weight_rows, Body&& body) {
    int shape = -1;
    for (int strip = first; strip < end; strip++)
        for (int row = 0; row < job.rows; row += 32) {
            const RowGroup group(row, job.rows);
            if (group.count != shape) configure(group.rows0, group.rows1, row_bytes, weight_rows);
            shape = group.count;
            body(strip, group, job.w + size_t(strip) * job.strip_bytes, job.a.data + size_t(row) * job.a.stride);
        }
    TILE_RELEASE();
}

void tile_bf16(const Product& job, int first, int end) {
    over_tiles(job, first, end, 64, 16, [&](int strip, const RowGroup& group, const uint8_t* w, const uint8_t* a) {
        const bool two = group.rows1 > 0;
        const size_t stride = job.a.stride;
        ZERO_SUMS(two);
        for (int k = 0; k < job.a.k; k += 32, w += 2048, a += 64) {
            ask_tiles(w);
            TILE_LOAD(4, a, stride);
            TILE_LOAD(6, w, 128);
            TILE_LOAD(7, w + 64, 128);
            TILE_BF16(0, 4, 6);
            TILE_BF16(1, 4, 7);
            if (two) {
                TILE_LOAD(5, a + 16 * stride, stride);
                TILE_BF16(2, 5, 6);
                TILE_BF16(3, 5, 7);
            }
        }
        Square<float> sums;
        STORE_SUMS(sums, two);
        for (int m = 0; m < group.count; m++)
            finish<1>(job, strip, group.first + m, Sums<1>{{Isa::load(sums.at[m])}, {Isa::load(sums.at[m] + PANEL)}});
    });
}

constexpr int FEW = 4;  // fewer rows take the plain kernels of bytes: a tile would be mostly empty

// One product of bytes: sums of up to 32 rows and a strip, into `ints`.
inline void tile_block(const uint8_t* a, size_t stride, const uint8_t* codes, bool two, Square<int32_t>& ints) {
    ZERO_SUMS(two);
    TILE_LOAD(4, a, stride);
    TILE_LOAD(6, codes, 128);
    TILE_LOAD(7, codes + 64, 128);
    TILE_S8U8(0, 4, 6);
    TILE_S8U8(1, 4, 7);
    if (two) {
        TILE_LOAD(5, a + 16 * stride, stride);
        TILE_S8U8(2, 5, 6);
        TILE_S8U8(3, 5, 7);
    }
    STORE_SUMS(ints, two);
}

inline I sum_of(const Square<int32_t>& ints, int row, int panel, I start) {
    return Isa::addi(_mm512_load_si512(ints.at[row] + panel), start);
}

inline void finish_rows(const Product& job, int strip, const RowGroup& group, const Square<float>& sums) {
    for (int m = 0; m < group.count; m++)
        finish<1>(job, strip, group.first + m, Sums<1>{{Isa::load(sums.at[m])}, {Isa::load(sums.at[m] + PANEL)}});
}

void tile_int8(const Product& job, int first, int end) {
    if (job.rows < FEW) return product<Int8Product>(job, first, end);
    over_tiles(job, first, end, 64, 16, [&](int strip, const RowGroup& group, const uint8_t* w, const uint8_t* a) {
        Square<float> sums;
        Square<int32_t> ints;
        clear(sums, group.count);
        for (int g = 0; g < job.a.per; g++, w += 2048, a += 64) {
            ask_tiles(w);
            tile_block(a, job.a.stride, w, group.rows1 > 0, ints);
            for (int m = 0; m < group.count; m++) {
                const int at = (group.first + m) * job.a.per + g;
                const I start = Isa::set1i(-128 * job.a.sum[at]);
                F x = Isa::load(sums.at[m]), y = Isa::load(sums.at[m] + PANEL);
                Int8Product::close_group(job, at, sum_of(ints, m, 0, start), sum_of(ints, m, PANEL, start), x, y);
                Isa::store(sums.at[m], x);
                Isa::store(sums.at[m] + PANEL, y);
            }
        }
        const F s0 = Isa::load((const float*)w), s1 = Isa::load((const float*)w + PANEL);
        for (int m = 0; m < group.count; m++)
            finish<1>(job, strip, group.first + m,
                      Sums<1>{{Isa::mul(Isa::load(sums.at[m]), s0)}, {Isa::mul(Isa::load(sums.at[m] + PANEL), s1)}});
    });
}

void tile_q8(const Product& job, int first, int end) {
    if (job.rows < FEW) return product<Q8Product>(job, first, end);
    over_tiles(job, first, end, BLOCK, 8, [&](int strip, const RowGroup& group, const uint8_t* w, const uint8_t* a) {
        Square<float> sums;
        Square<int32_t> ints;
        clear(sums, group.count);
        for (int b = 0; b < job.a.per; b++, w += unit_bytes(Q8_0), a += BLOCK) {
            for (size_t near = 0; near < unit_bytes(Q8_0); near += 64) __builtin_prefetch(w + 4096 + near);
            tile_block(a, job.a.stride, w + 64, group.rows1 > 0, ints);
            const F d0 = Isa::load_half((const uint16_t*)w), d1 = Isa::load_half((const uint16_t*)w + PANEL);
            for (int m = 0; m < group.count; m++) {
                const int at = (group.first + m) * job.a.per + b;
                const I start = Isa::set1i(-128 * job.a.sum[at]);
                F x = Isa::load(sums.at[m]), y = Isa::load(sums.at[m] + PANEL);
                Q8Product::close_block(job, at, d0, d1, sum_of(ints, m, 0, start), sum_of(ints, m, PANEL, start), x, y);
                Isa::store(sums.at[m], x);
                Isa::store(sums.at[m] + PANEL, y);
            }
        }
        finish_rows(job, strip, group, sums);
    });
}

// Nibbles of a block as bytes, group of 4 inputs after group.
inline void spread(const uint8_t* codes, uint8_t* room) {
    for (int g = 0; g < 4; g++)
        for (int panel = 0; panel < 128; panel += 64) {
            _mm512_store_si512(room + 128 * g + panel, Isa::low_nibbles(codes + 128 * g + panel));
            _mm512_store_si512(room + 128 * (g + 4) + panel, Isa::high_nibbles(codes + 128 * g + panel));
        }
}

template <Format FORMAT> void tile_q4(const Product& job, int first, int end) {
    using Plain = Q4Product<FORMAT>;
    if (job.rows < FEW) return product<Plain>(job, first, end);
    over_tiles(job, first, end, BLOCK / 2, 4, [&](int strip, const RowGroup& group, const uint8_t* w, const uint8_t* a) {
        Square<float> sums;
        Square<int32_t> low, high;
        alignas(64) uint8_t room[1024];
        clear(sums, group.count);
        for (int half = 0; half < job.a.per; half += 2, w += unit_bytes(FORMAT), a += BLOCK) {
            for (size_t near = 0; near < unit_bytes(FORMAT); near += 64) __builtin_prefetch(w + 4096 + near);
            spread(w + Plain::CODES, room);
            tile_block(a, job.a.stride, room, group.rows1 > 0, low);
            tile_block(a + BLOCK / 2, job.a.stride, room + 512, group.rows1 > 0, high);
            const typename Plain::Scales scales(w);
            for (int m = 0; m < group.count; m++) {
                const int at = (group.first + m) * job.a.per + half;
                const I start = Plain::start(job, at), next = Plain::start(job, at + 1);
                F x = Isa::load(sums.at[m]), y = Isa::load(sums.at[m] + PANEL);
                Plain::close_block(job, at, scales, sum_of(low, m, 0, start), sum_of(low, m, PANEL, start),
                                   sum_of(high, m, 0, next), sum_of(high, m, PANEL, next), x, y);
                Isa::store(sums.at[m], x);
                Isa::store(sums.at[m] + PANEL, y);
            }
        }
        finish_rows(job, strip, group, sums);
    });
}

// Attention for heads of 64 or 128; other sizes keep to the plain kernels, for all rows alike.
template <int CHUNKS> inline void tile_scores_of(const Scores& job) {  // 32 dimensions a chunk
    TILE_LOAD(4, job.q, job.q_stride);
    TILE_LOAD(5, job.q + 64, job.q_stride);
    if constexpr (CHUNKS == 4) {
        TILE_LOAD(6, job.q + 128, job.q_stride);
        TILE_LOAD(7, job.q + 192, job.q_stride);
    }
    for (int t = 0; t < job.tiles; t++) {
        const uint8_t* key = job.keys[t];
        TILE_ZERO(0);
        TILE_LOAD(1, key, 64);
        TILE_BF16(0, 4, 1);
        TILE_LOAD(2, key + 1024, 64);
        TILE_BF16(0, 5, 2);
        if constexpr (CHUNKS == 4) {
            TILE_LOAD(1, key + 2048, 64);
            TILE_BF16(0, 6, 1);
            TILE_LOAD(2, key + 3072, 64);
            TILE_BF16(0, 7, 2);
        }
        TILE_STORE(0, job.out + 16 * t, job.out_stride * 4);
    }
}

void tile_scores(const Scores& job) {
    if ((job.dim != 64 && job.dim != 128) || job.queries > 16) return scores<KV_BF16>(job);
    TileConfig c;
    for (int t = 0; t < 8; t++) c.bytes[t] = 64, c.rows[t] = uint8_t(job.queries);
    c.rows[1] = c.rows[2] = 16;
    TILE_CONFIGURE(&c);
    job.dim == 64 ? tile_scores_of<2>(job) : tile_scores_of<4>(job);
    TILE_RELEASE();
}

void tile_mix(const Mix& job) {
    if ((job.dims != 64 && job.dims != 128) || job.queries > 16) return mix<KV_BF16>(job);
    TileConfig c;
    for (int t = 0; t < 8; t++) c.bytes[t] = 64, c.rows[t] = uint8_t(job.queries);
    c.bytes[4] = 32;  // 16 keys
    c.rows[5] = c.rows[6] = 8;
    TILE_CONFIGURE(&c);
    const size_t stride = size_t(job.dims) * 4;
    for (int dim = 0; dim < job.dims; dim += 64) {
        float* out = job.out + dim;
        TILE_LOAD(0, out, job.out_stride * 4);
        TILE_LOAD(1, out + 16, job.out_stride * 4);
        TILE_LOAD(2, out + 32, job.out_stride * 4);
        TILE_LOAD(3, out + 48, job.out_stride * 4);
        for (int t = 0; t < job.tiles; t++) {
            const uint8_t* values = job.values[t] + 4 * dim;
            TILE_LOAD(4, job.p + 32 * t, job.p_stride);
            TILE_LOAD(5, values, stride);
            TILE_BF16(0, 4, 5);
            TILE_LOAD(6, values + 64, stride);
            TILE_BF16(1, 4, 6);
            TILE_LOAD(5, values + 128, stride);
            TILE_BF16(2, 4, 5);
            TILE_LOAD(6, values + 192, stride);
            TILE_BF16(3, 4, 6);
        }
        TILE_STORE(0, out, job.out_stride * 4);
        TILE_STORE(1, out + 16, job.out_stride * 4);
        TILE_STORE(2, out + 32, job.out_stride * 4);
        TILE_STORE(3, out + 48, job.out_stride * 4);
    }
    TILE_RELEASE();
}

inline Kernels tile_table(const char* name) {
    Kernels t = table(name);
    t.product[BF16] = tile_bf16;
    t.product[INT8] = tile_int8;
    t.product[Q8_0] = tile_q8;
    t.product[Q4_0] = tile_q4<Q4_0>;
    t.product[Q4_1] = tile_q4<Q4_1>;
    t.scores[KV_BF16] = tile_scores;
    t.mix[KV_BF16] = tile_mix;
    return t;
}
