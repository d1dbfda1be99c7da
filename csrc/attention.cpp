#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace forerun {

std::vector<Unit> units(const Forward& forward, const Heads& heads, int threads) {
    const int64_t pairs = int64_t(forward.items.size()) * heads.kv_heads;
    std::vector<Unit> out;
    for (size_t b = 0; b < forward.items.size(); b++) {
        const int queries = (forward.first_row[b + 1] - forward.first_row[b]) * heads.group();
        if (!queries) continue;
        int parts = (queries + UNIT_QUERIES - 1) / UNIT_QUERIES;
        while (parts < queries && pairs * parts < 4 * threads && pairs * parts % threads) parts++;
        for (int head = 0; head < heads.kv_heads; head++)
            for (int part = 0; part < parts; part++)
                out.push_back({int(b), head, int(int64_t(queries) * part / parts), int(int64_t(queries) * (part + 1) / parts)});
    }
    return out;
}

// What one unit works on.
struct Attention::Span {
    const Forward& forward;
    const KV& kv;
    int item, layer, kv_head;
    int64_t first;  // tile
};

void Attention::prepare(const Forward& forward, const KV& kv, const Heads& heads, int threads) {
    int64_t longest = 1, gathered = 0;
    for (const Row& row : forward.rows) {
        longest = std::max(longest, row.position + 1);
        if (row.split <= row.position) gathered = std::max(gathered, row.position / KV::TOKENS - row.split / KV::TOKENS + 1);
    }
    query_bytes_ = size_t(kv.dims) * sizeof(float);
    score_floats_ = padded(size_t(longest), 16) + 16;
    gathered_tiles_ = size_t(gathered);
    const int rows = UNIT_QUERIES / heads.group() + 2;
    const size_t sizes[] = {
        padded(UNIT_QUERIES * query_bytes_, 64),
        padded(UNIT_QUERIES * score_floats_ * sizeof(float), 64),
        padded(UNIT_QUERIES * size_t(kv.dims) * sizeof(float), 64),
        gathered_tiles_ * rows * (padded(kv.key_bytes(), 64) + padded(kv.value_bytes(), 64) + 128),
        2 * padded(kv.value_bytes(), 64),
    };
    scratch_.resize(threads);
    for (Scratch& s : scratch_) {
        const size_t need = sizes[0] + sizes[1] + sizes[2] + sizes[3] + sizes[4] + 64;
        if (s.memory.size() < need) s.memory.resize(need);
        uint8_t* at = s.memory.data() + (64 - size_t(s.memory.data()) % 64) % 64;
        s.queries = at;
        s.scores = (float*)(at += sizes[0]);
        s.sums = (float*)(at += sizes[1]);
        s.gathered = at += sizes[2];
        s.edges = at + sizes[3];
        const size_t tiles = score_floats_ / 16;
        s.keys.resize(tiles), s.values.resize(tiles), s.key_scales.resize(tiles), s.value_scales.resize(tiles);
    }
}

// The tile as it lies in memory.
void Attention::point(const Span& span, Scratch& s, int64_t tile) const {
    const int64_t block = span.forward.items[span.item].blocks[tile];
    const int64_t at = tile - span.first;
    s.keys[at] = span.kv.key_tile(span.layer, span.kv_head, block);
    s.values[at] = span.kv.value_tile(span.layer, span.kv_head, block);
    if (span.kv.type != KV_INT8) return;
    s.key_scales[at] = span.kv.key_scales(span.layer, span.kv_head, block);
    s.value_scales[at] = span.kv.value_scales(span.layer, span.kv_head, block);
}

// The tile as the row's path goes through it: positions in order, wherever they are stored.
void Attention::gather(const Span& span, Scratch& s, const Row& row, int local, int64_t tile) const {
    const KV& kv = span.kv;
    const int64_t start = tile * KV::TOKENS, end = std::min<int64_t>(start + KV::TOKENS, row.position + 1);
    if (end <= row.split) return point(span, s, tile);
    const size_t key_bytes = padded(kv.key_bytes(), 64), value_bytes = padded(kv.value_bytes(), 64);
    uint8_t* key = s.gathered + (local * gathered_tiles_ + (tile - row.split / KV::TOKENS)) * (key_bytes + value_bytes + 128);
    uint8_t* value = key + key_bytes;
    float* scales = (float*)(value + value_bytes);
    const int64_t at = tile - span.first;
    if (start < row.split) {
        point(span, s, tile);
        std::memcpy(key, s.keys[at], kv.key_bytes());
        std::memcpy(value, s.values[at], kv.value_bytes());
        if (kv.type == KV_INT8) std::memcpy(scales, s.key_scales[at], 128);
    }
    for (int64_t p = std::max(start, row.split); p < end; p++) {
        const int64_t slot = span.forward.slot(span.item, span.forward.storage(row, p)), block = slot / KV::TOKENS;
        const int from = int(slot % KV::TOKENS), to = int(p % KV::TOKENS);
        kv.copy_token(kv.key_tile(span.layer, span.kv_head, block), kv.value_tile(span.layer, span.kv_head, block), from, key, value, to);
        if (kv.type != KV_INT8) continue;
        scales[to] = kv.key_scales(span.layer, span.kv_head, block)[from];
        scales[16 + to] = kv.value_scales(span.layer, span.kv_head, block)[from];
    }
    s.keys[at] = key, s.values[at] = value, s.key_scales[at] = scales, s.value_scales[at] = scales + 16;
}

// The values of a tile with zeros in the place of positions outside [low, end), which may hold anything: a sequence
// that ended left it there, or a branch that this row is not on. Their weight is 0, but 0 times infinity is none.
const uint8_t* Attention::trimmed(const KV& kv, const uint8_t* values, int low, int end, uint8_t* room) {
    if (low <= 0 && end >= KV::TOKENS) return values;
    std::memcpy(room, values, kv.value_bytes());
    kv.clear_values(room, 0, std::max(0, low));
    kv.clear_values(room, std::min(KV::TOKENS, end), KV::TOKENS);
    return room;
}

void Attention::run(const Unit& unit, const Forward& forward, const KV& kv, const Kernels& kernels, const Heads& heads, int layer,
                    const float* qkv, size_t qkv_stride, float* out, size_t out_stride, int thread) {
    Scratch& s = scratch_[thread];
    const int group = heads.group(), queries = unit.end - unit.first, dim = heads.head_dim;
    const int row0 = forward.first_row[unit.item];
    const auto row_of = [&](int q) -> const Row& { return forward.rows[row0 + q / group]; };
    const auto low_of = [&](const Row& row) { return heads.window ? std::max<int64_t>(0, row.position - heads.window + 1) : 0; };

    int64_t first = row_of(unit.first).position, end = 0, shared = INT64_MAX;
    int64_t whole = 0, whole_end = INT64_MAX;  // tiles that all rows see all of
    for (int q = unit.first; q < unit.end; q++) {
        const Row& row = row_of(q);
        first = std::min(first, low_of(row) / KV::TOKENS);
        end = std::max(end, row.position / KV::TOKENS + 1);
        whole = std::max(whole, (low_of(row) + KV::TOKENS - 1) / KV::TOKENS);
        whole_end = std::min(whole_end, (row.position + 1) / KV::TOKENS);
        if (row.split <= row.position) shared = std::min(shared, row.split / KV::TOKENS);
    }
    shared = std::max(first, std::min(shared, end));
    const Span span{forward, kv, unit.item, layer, unit.kv_head, first};
    const int tiles = int(end - first), common = int(shared - first);
    const size_t score_stride = size_t(tiles) * 16;
    const Act act = kv.type == KV_BF16 ? kernels.kv_act : ACT_F32;

    for (int q = 0; q < queries; q++) {
        const int index = unit.first + q, head = unit.kv_head * group + index % group;
        kernels.pack_query(act, qkv + (row0 + index / group) * qkv_stride + head * dim, dim, s.queries + q * query_bytes_);
    }
    for (int64_t t = first; t < shared; t++) point(span, s, t);

    Scores scores{s.queries, query_bytes_, queries, dim, common, s.keys.data(), s.key_scales.data(), s.scores, score_stride};
    if (common) kernels.scores[kv.type](scores);
    std::memset(s.sums, 0, size_t(queries) * kv.dims * sizeof(float));
    const float scale = heads.scale > 0 ? heads.scale : 1.0f / std::sqrt(float(dim));
    float totals[UNIT_QUERIES];
    const auto low_at = [&](const Row& row) { return int(low_of(row) - 16 * first); };
    const auto end_at = [&](const Row& row) { return int(row.position + 1 - 16 * first); };
    const auto weigh = [&](int q, const Row& row) {
        float* at = s.scores + q * score_stride;
        totals[q] = kernels.softmax({at, tiles, low_at(row), end_at(row), scale, s.value_scales.data(), (uint8_t*)at, kv.type});
    };
    const bool alone = shared < end;  // rows have tiles of their own
    const auto mix = [&](int q, int count, int from, int to) {
        if (from < to)
            kernels.mix[kv.type]({(const uint8_t*)(s.scores + q * score_stride) + size_t(from) * 16 * act_bytes(act), score_stride * sizeof(float),
                                  count, kv.dims, to - from, s.values.data() + from, s.sums + size_t(q) * kv.dims, size_t(kv.dims)});
    };
    // What one row sees of tiles [from, to), and no more.
    const auto mix_row = [&](int q, int count, const Row& row, int from, int to) {
        from = std::max(from, low_at(row) / 16), to = std::min(to, (end_at(row) + 15) / 16);
        if (from >= to) return;
        const uint8_t *front = s.values[from], *back = s.values[to - 1];
        s.values[from] = trimmed(kv, front, low_at(row) - 16 * from, end_at(row) - 16 * from, s.edges);
        if (to - 1 > from) s.values[to - 1] = trimmed(kv, back, low_at(row) - 16 * (to - 1), end_at(row) - 16 * (to - 1), s.edges + padded(kv.value_bytes(), 64));
        mix(q, count, from, to);
        s.values[from] = front, s.values[to - 1] = back;
    };
    const auto each_row = [&](auto&& act) {
        for (int q = 0, next; q < queries; q = next) {
            next = std::min(queries, q + group - (unit.first + q) % group);
            act(q, next, row_of(unit.first + q));
        }
    };
    if (alone) {
        each_row([&](int q, int next, const Row& row) {
            const int last = int(row.position / KV::TOKENS + 1 - first);
            for (int t = common; t < last; t++) gather(span, s, row, (unit.first + q) / group - unit.first / group, first + t);
            Scores own{s.queries + q * query_bytes_, query_bytes_, next - q, dim, last - common, s.keys.data() + common,
                       s.key_scales.data() + common, s.scores + q * score_stride + 16 * common, score_stride};
            if (last > common) kernels.scores[kv.type](own);
            for (int i = q; i < next; i++) weigh(i, row);
            mix_row(q, next - q, row, 0, last);
        });
    } else {
        const int inner = int(std::max(first, std::min(whole, end)) - first), outer = std::max(inner, int(std::min(whole_end, end) - first));
        for (int q = 0; q < queries; q++) weigh(q, row_of(unit.first + q));
        each_row([&](int q, int next, const Row& row) { mix_row(q, next - q, row, 0, inner); });
        mix(0, queries, inner, outer);
        each_row([&](int q, int next, const Row& row) { mix_row(q, next - q, row, outer, tiles); });
    }
    for (int q = 0; q < queries; q++) {
        const int index = unit.first + q, head = unit.kv_head * group + index % group;
        float* to = out + (row0 + index / group) * out_stride + head * dim;
        for (int d = 0; d < dim; d++) to[d] = s.sums[q * kv.dims + d] / totals[q];
    }
}

}  // namespace forerun
