#include "forward.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace forerun {
namespace {

constexpr size_t MOST_ROWS = size_t(1) << 20, MOST_BLOCKS = size_t(1) << 26;  // of a forward, of an item

void check(const Item& item, int64_t blocks) {
    const int64_t nodes = int64_t(item.parents.size()), room = int64_t(item.blocks.size()) * KV::TOKENS;
    if (item.start < 0 || item.certain < 0 || item.seen < 0 || item.seen > nodes)
        throw std::invalid_argument("an item's start, certain and seen do not fit its " + std::to_string(nodes) + " nodes");
    if (item.blocks.size() > MOST_BLOCKS || item.start > room || item.certain > room - item.start || nodes > room - item.start - item.certain)
        throw std::invalid_argument(std::to_string(item.start) + " tokens, " + std::to_string(item.certain) + " more and " + std::to_string(nodes) +
                                    " nodes do not fit the item's " + std::to_string(item.blocks.size()) + " blocks");
    for (int64_t n = 0; n < nodes; n++)
        if (item.parents[n] >= n || item.parents[n] < (n ? 0 : -1))
            throw std::invalid_argument("node " + std::to_string(n) + " has parent " + std::to_string(item.parents[n]) + ": parents come first, the root's is -1");
    for (int64_t block : item.blocks)
        if (block < 0 || block >= blocks) throw std::invalid_argument("block " + std::to_string(block) + " is not in this memory");
}

}  // namespace

Forward::Forward(const std::vector<Item>& items_, size_t tokens, const KV& kv) : items(items_) {
    size_t nodes = 0, count = 0;
    for (const Item& item : items) {
        check(item, kv.blocks);
        nodes += item.parents.size();
        count += size_t(item.certain) + item.parents.size() - size_t(item.seen);
    }
    if (count != tokens) throw std::invalid_argument(std::to_string(tokens) + " tokens were given for " + std::to_string(count) + " rows");
    if (std::max({count, nodes, items.size()}) > MOST_ROWS) throw std::invalid_argument("a forward has at most 2^20 rows, nodes and items: feed fewer at a time");
    paths_.reserve(nodes);  // rows point into it
    for (size_t b = 0; b < items.size(); b++) {
        const Item& item = items[b];
        const int64_t root = item.start + item.certain;
        first_row.push_back(int(rows.size()));
        for (int64_t p = item.start; p < root; p++) rows.push_back({int(b), p, slot(int(b), p), p + 1, nullptr, root});
        const size_t first = paths_.size();
        for (size_t n = 0; n < item.parents.size(); n++) {
            paths_.push_back(n ? paths_[first + item.parents[n]] : std::vector<int>{});
            auto& path = paths_.back();
            path.push_back(int(n));
            if (int64_t(n) < item.seen) continue;
            const int64_t depth = int64_t(path.size()) - 1;
            int64_t same = 0;
            while (same <= depth && path[same] == same) same++;
            wanted.push_back(int(rows.size()));
            rows.push_back({int(b), root + depth, slot(int(b), root + int64_t(n)), root + same, path.data(), root});
        }
    }
    first_row.push_back(int(rows.size()));
}

}  // namespace forerun
