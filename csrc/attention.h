// Attention of a forward's rows over the memory, cut into units that threads take one after another.
#pragma once
#include <atomic>

#include "forward.h"
#include "op.h"

namespace forerun {

// Queries [first, end) of one item and key head: query q is head q % group of the item's row q / group.
struct Unit {
    int item, kv_head, first, end;
};

constexpr int UNIT_QUERIES = 16;

// Units of at most UNIT_QUERIES, more and smaller ones where there would be too few to share among the threads.
std::vector<Unit> units(const Forward& forward, const Heads& heads, int threads);

class Attention {
  public:
    // Scratch for each thread, enough for this forward.
    void prepare(const Forward& forward, const KV& kv, const Heads& heads, int threads);

    // qkv rows hold rotated queries; out rows get [heads * head_dim].
    void run(const Unit& unit, const Forward& forward, const KV& kv, const Kernels& kernels, const Heads& heads, int layer,
             const float* qkv, size_t qkv_stride, float* out, size_t out_stride, int thread);

  private:
    struct Scratch {
        std::vector<uint8_t> memory;
        uint8_t *queries, *gathered, *edges;
        float *scores, *sums;
        std::vector<const uint8_t*> keys, values;
        std::vector<const float*> key_scales, value_scales;
    };
    struct Span;
    void point(const Span& span, Scratch& s, int64_t tile) const;
    static const uint8_t* trimmed(const KV& kv, const uint8_t* values, int low, int end, uint8_t* room);
    void gather(const Span& span, Scratch& s, const Row& row, int local, int64_t tile) const;

    std::vector<Scratch> scratch_;
    size_t query_bytes_ = 0, score_floats_ = 0, gathered_tiles_ = 0;
};

}  // namespace forerun
