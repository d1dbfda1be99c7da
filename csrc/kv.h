// Keys and values of all layers in blocks of 16 tokens, each head's block a tile that attention reads as it lies.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "kernels.h"

namespace forerun {

class KV {
  public:
    KV(int layers, int kv_heads, int head_dim, int64_t blocks, const std::string& dtype);
    ~KV();
    KV(const KV&) = delete;

    static constexpr int TOKENS = 16;
    const int layers, kv_heads, head_dim, dims;  // dims: head_dim padded to 16
    const int64_t blocks;
    KVType type;

    size_t nbytes() const { return bytes_; }
    uint8_t* key_tile(int layer, int head, int64_t block) const { return at(layer, head, block, keys_, key_bytes_); }
    uint8_t* value_tile(int layer, int head, int64_t block) const { return at(layer, head, block, values_, value_bytes_); }
    float* key_scales(int layer, int head, int64_t block) const { return (float*)at(layer, head, block, scales_, 128); }
    float* value_scales(int layer, int head, int64_t block) const { return key_scales(layer, head, block) + 16; }
    size_t key_bytes() const { return key_bytes_; }
    size_t value_bytes() const { return value_bytes_; }

    void put(int layer, int head, int64_t slot, const float* key, const float* value) const;
    void move(const std::vector<int64_t>& sources, const std::vector<int64_t>& targets) const;
    void copy_block(int64_t source, int64_t target) const;

    // Copies token `from` of tiles to token `to` of other tiles of the same kind.
    void copy_token(const uint8_t* key, const uint8_t* value, int from, uint8_t* key_to, uint8_t* value_to, int to) const;

    // Zeros in the place of tokens [first, end) of a value tile.
    void clear_values(uint8_t* value, int first, int end) const;

  private:
    uint8_t* at(int layer, int head, int64_t block, uint8_t* base, size_t bytes) const {
        return base + ((int64_t(layer) * kv_heads + head) * blocks + block) * int64_t(bytes);
    }
    size_t key_bytes_, value_bytes_, bytes_;
    void* memory_ = nullptr;
    uint8_t *keys_, *values_, *scales_;
};

}  // namespace forerun
