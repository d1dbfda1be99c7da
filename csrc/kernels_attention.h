// Attention over tiles of 16 positions: scores, weights, mixed values; included by kernels_impl.h.

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
    F top = never, odd = Isa::zero();
    for (int t = first; t < last; t++) {
        float* s = job.scores + 16 * t;
        for (int i = 16 * t; i < job.low; i++) s[i - 16 * t] = -__builtin_inff();
        for (int i = job.end; i < 16 * t + 16; i++) s[i - 16 * t] = -__builtin_inff();
        top = Isa::max(top, Isa::load(s));
        odd = Isa::add(odd, Isa::load(s));  // a maximum may overlook NaN, a sum does not
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
        if (job.type != KV_INT8 || (t != first && t != last - 1)) continue;
        float* weights = (float*)job.p;  // outside, the scales may be anything
        for (int i = 16 * t; i < job.low; i++) weights[i] = 0;
        for (int i = job.end; i < 16 * t + 16; i++) weights[i] = 0;
    }
    const float strange = Isa::sum(odd);
    return strange != strange ? strange : Isa::sum(total);
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
