#include "kv.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <sys/mman.h>

namespace forerun {
namespace {

KVType type_of(const std::string& dtype) {
    if (dtype == "f32") return KV_F32;
    if (dtype == "bf16") return KV_BF16;
    if (dtype == "int8") return KV_INT8;
    throw std::invalid_argument("dtype of keys and values is '" + dtype + "' (allowed: f32, bf16, int8)");
}

int positive(int64_t value, const char* what, int64_t most) {
    if (value < 1 || value > most)
        throw std::invalid_argument(std::string(what) + " is " + std::to_string(value) + " (allowed: 1.." + std::to_string(most) + ")");
    return int(value);
}

uint16_t bf16(float x) {  // to nearest, ties to even; a NaN stays one
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (x != x) return uint16_t(bits >> 16 | 0x40);
    return uint16_t((bits + ((bits >> 16 & 1) + 0x7fff)) >> 16);
}

// Codes of 8 bits and their scale; a scale that is NaN, and codes of 0, where a value is not finite.
template <class Put> float to_codes(const float* x, int n, Put&& put) {
    float top = 0, odd = 0;
    for (int i = 0; i < n; i++) top = std::fmax(top, std::fabs(x[i])), odd += x[i] * 0.0f;
    const float scale = top / 127.0f + odd;
    for (int i = 0; i < n; i++) put(i, scale > 0 ? int8_t(std::nearbyint(x[i] / scale)) : int8_t(0));
    return scale;
}

}  // namespace

KV::KV(int layers_, int kv_heads_, int head_dim_, int64_t blocks_, const std::string& dtype)
    : layers(positive(layers_, "layers", 4096)),
      kv_heads(positive(kv_heads_, "kv_heads", 4096)),
      head_dim(positive(head_dim_, "head_dim", 4096)),
      dims(int(padded(head_dim, 16))),
      blocks(blocks_),
      type(type_of(dtype)) {
    if (head_dim % 2) throw std::invalid_argument("head_dim " + std::to_string(head_dim) + " is odd");
    if (blocks < 1) throw std::invalid_argument("a memory needs at least 1 block");
    const size_t width = type == KV_F32 ? 4 : type == KV_BF16 ? 2 : 1;
    key_bytes_ = size_t(head_dim) * TOKENS * width;
    value_bytes_ = size_t(dims) * TOKENS * width;
    const size_t each = key_bytes_ + value_bytes_ + (type == KV_INT8 ? 128 : 0);
    const long double all = (long double)each * layers * kv_heads * (long double)blocks;
    if (all > (long double)(std::numeric_limits<int64_t>::max() / 2)) throw std::bad_alloc();
    const size_t tiles = size_t(layers) * kv_heads * size_t(blocks);
    bytes_ = tiles * each;
    // Zeros, whose pages the system gives when they are first written.
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    keys_ = (uint8_t*)memory_;
    values_ = keys_ + tiles * key_bytes_;
    scales_ = values_ + tiles * value_bytes_;
}

KV::~KV() { munmap(memory_, bytes_); }

void KV::put(int layer, int head, int64_t slot, const float* key, const float* value) const {
    const int64_t block = slot / TOKENS;
    const int i = int(slot % TOKENS);
    uint8_t *k = key_tile(layer, head, block), *v = value_tile(layer, head, block);
    if (type == KV_F32) {
        for (int d = 0; d < head_dim; d++) ((float*)k)[d * 16 + i] = key[d];
        std::memcpy((float*)v + i * dims, value, head_dim * sizeof(float));
    } else if (type == KV_BF16) {
        uint16_t *k16 = (uint16_t*)k, *v16 = (uint16_t*)v;
        for (int d = 0; d < head_dim; d++) k16[(d / 2 * 16 + i) * 2 + d % 2] = bf16(key[d]);
        for (int d = 0; d < head_dim; d++) v16[(i / 2 * dims + d) * 2 + i % 2] = bf16(value[d]);
    } else {
        key_scales(layer, head, block)[i] = to_codes(key, head_dim, [&](int d, int8_t code) { ((int8_t*)k)[d * 16 + i] = code; });
        value_scales(layer, head, block)[i] = to_codes(value, head_dim, [&](int d, int8_t code) { ((int8_t*)v)[i * dims + d] = code; });
    }
}

void KV::clear_values(uint8_t* value, int first, int end) const {
    const size_t token = size_t(dims) * (type == KV_F32 ? 4 : type == KV_BF16 ? 2 : 1);
    if (type == KV_BF16 && first % 2 && first < end) {  // two tokens share each four bytes
        uint16_t* odd = (uint16_t*)(value + size_t(first - 1) * token);
        for (int d = 0; d < dims; d++) odd[2 * d + 1] = 0;
        first++;
    }
    if (type == KV_BF16 && end % 2 && first < end) {
        uint16_t* even = (uint16_t*)(value + size_t(end - 1) * token);
        for (int d = 0; d < dims; d++) even[2 * d] = 0;
        end--;
    }
    if (first < end) std::memset(value + size_t(first) * token, 0, size_t(end - first) * token);
}

void KV::copy_token(const uint8_t* key, const uint8_t* value, int from, uint8_t* key_to, uint8_t* value_to, int to) const {
    if (type == KV_F32) {
        for (int d = 0; d < head_dim; d++) ((float*)key_to)[d * 16 + to] = ((const float*)key)[d * 16 + from];
        std::memmove((float*)value_to + to * dims, (const float*)value + from * dims, dims * sizeof(float));
    } else if (type == KV_BF16) {
        for (int d = 0; d < head_dim / 2; d++) ((uint32_t*)key_to)[d * 16 + to] = ((const uint32_t*)key)[d * 16 + from];
        const uint16_t* source = (const uint16_t*)value + from / 2 * dims * 2 + from % 2;
        uint16_t* target = (uint16_t*)value_to + to / 2 * dims * 2 + to % 2;
        for (int d = 0; d < dims; d++) target[2 * d] = source[2 * d];
    } else {
        for (int d = 0; d < head_dim; d++) key_to[d * 16 + to] = key[d * 16 + from];
        std::memmove(value_to + to * dims, value + from * dims, dims);
    }
}

void KV::move(const std::vector<int64_t>& sources, const std::vector<int64_t>& targets) const {
    if (sources.size() != targets.size()) throw std::invalid_argument("as many sources as targets are needed");
    for (const auto* slots : {&sources, &targets})
        for (int64_t slot : *slots)
            if (slot < 0 || slot >= blocks * TOKENS) throw std::invalid_argument("slot " + std::to_string(slot) + " is not in this memory");
    const size_t count = sources.size(), tiles = (count + TOKENS - 1) / TOKENS;
    std::vector<uint8_t> held_keys(tiles * key_bytes_), held_values(tiles * value_bytes_);
    std::vector<float> held_scales(2 * count);
    for (int layer = 0; layer < layers; layer++)
        for (int head = 0; head < kv_heads; head++) {
            for (int store = 0; store < 2; store++)
                for (size_t n = 0; n < count; n++) {
                    const int64_t slot = store ? targets[n] : sources[n], block = slot / TOKENS;
                    uint8_t *key = key_tile(layer, head, block), *value = value_tile(layer, head, block);
                    uint8_t *held_key = &held_keys[n / TOKENS * key_bytes_], *held_value = &held_values[n / TOKENS * value_bytes_];
                    const int i = int(slot % TOKENS), j = int(n % TOKENS);
                    if (store) copy_token(held_key, held_value, j, key, value, i);
                    else copy_token(key, value, i, held_key, held_value, j);
                    if (type != KV_INT8) continue;
                    float *ks = key_scales(layer, head, block) + i, *vs = value_scales(layer, head, block) + i;
                    if (store) *ks = held_scales[2 * n], *vs = held_scales[2 * n + 1];
                    else held_scales[2 * n] = *ks, held_scales[2 * n + 1] = *vs;
                }
        }
}

void KV::copy_block(int64_t source, int64_t target) const {
    for (int64_t block : {source, target})
        if (block < 0 || block >= blocks) throw std::invalid_argument("block " + std::to_string(block) + " is not in this memory");
    for (int layer = 0; layer < layers; layer++)
        for (int head = 0; head < kv_heads; head++) {
            std::memcpy(key_tile(layer, head, target), key_tile(layer, head, source), key_bytes_);
            std::memcpy(value_tile(layer, head, target), value_tile(layer, head, source), value_bytes_);
            if (type == KV_INT8) std::memcpy(key_scales(layer, head, target), key_scales(layer, head, source), 128);
        }
}

}  // namespace forerun
