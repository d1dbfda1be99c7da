// One forward's rows: where each fed token stands, where it is stored, and what it may see.
//
// A sequence's storage is its held tokens, then the nodes of its tree in feeding order. A row sees its path: position p
// below the root is stored at index p; from the root on, at the root's index plus the node of the path. Only where these
// differ (`split`) is anything gathered, so chains and held tokens are read as they lie.
#pragma once
#include <cstdint>
#include <vector>

#include "kv.h"

namespace forerun {

struct Item {
    int64_t start, certain, seen;
    std::vector<int> parents;
    std::vector<int64_t> blocks;
};

struct Row {
    int item;
    int64_t position, slot;
    int64_t split;  // first position whose storage index is another; past the row's own if there is none
    const int* path;  // nodes from the root to this one; null for certain tokens
    int64_t root;     // the root's position
};

class Forward {
  public:
    // Throws std::invalid_argument where indices do not fit.
    Forward(const std::vector<Item>& items, size_t tokens, const KV& kv);

    const std::vector<Item>& items;
    std::vector<Row> rows;
    std::vector<int> first_row;  // of each item, and the end
    std::vector<int> wanted;     // rows of fresh nodes

    int64_t storage(const Row& row, int64_t position) const {
        return position < row.split ? position : row.root + row.path[position - row.root];
    }
    int64_t slot(int item, int64_t index) const { return items[item].blocks[index / KV::TOKENS] * KV::TOKENS + index % KV::TOKENS; }

  private:
    std::vector<std::vector<int>> paths_;
};

}  // namespace forerun
