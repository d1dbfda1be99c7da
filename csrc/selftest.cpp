#include "selftest.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "pack.h"

namespace forerun {
namespace {

constexpr int OUTPUTS = 40, INPUTS = 160, K = 192;  // neither a whole strip nor a whole step

struct Random {  // xorshift: the same numbers everywhere
    uint32_t state = 2463534242u;
    uint32_t bits() {
        state ^= state << 13, state ^= state >> 17, state ^= state << 5;
        return state;
    }
    float unit() { return float(bits() >> 8) / float(1 << 23) - 1.0f; }  // -1 to 1
    std::vector<float> floats(size_t count) {
        std::vector<float> out(count);
        for (float& x : out) x = unit();
        return out;
    }
};

template <class T> std::vector<T> codes(Random& random, int low, int high, size_t count) {
    std::vector<T> out(count);
    for (T& code : out) code = T(low + int(random.bits() % uint32_t(high - low + 1)));
    return out;
}

std::vector<Half> halves(Random& random, size_t count) {
    std::vector<Half> out(count);
    for (Half& half : out) half = to_half(0.01f * random.unit());
    return out;
}

std::vector<uint8_t> packed(Format format, Random& random) {
    const size_t count = size_t(OUTPUTS) * INPUTS;
    std::vector<uint8_t> out(matrix_bytes(format, OUTPUTS, INPUTS) + 64);
    if (format == F32) pack_f32(random.floats(count).data(), OUTPUTS, INPUTS, out.data());
    if (format == BF16) {
        std::vector<uint16_t> bits(count);
        for (uint16_t& x : bits) x = to_bf16(random.unit());
        pack_bf16(bits.data(), OUTPUTS, INPUTS, out.data());
    }
    if (format == INT8) pack_int8(codes<int8_t>(random, -127, 127, count).data(), random.floats(OUTPUTS).data(), OUTPUTS, INPUTS, out.data());
    if (format == Q8_0 || format == Q4_0 || format == Q4_1) {
        const auto all = format == Q8_0 ? codes<int8_t>(random, -128, 127, count) : codes<int8_t>(random, 0, 15, count);
        const auto d = halves(random, count / BLOCK), m = halves(random, count / BLOCK);
        pack_blocks(format, all.data(), d.data(), m.data(), OUTPUTS, INPUTS, out.data());
    }
    if (format == NF4) {
        std::vector<uint8_t> whole(matrix_bytes(format, OUTPUTS, K) + 64);  // its blocks are 64 wide
        pack_nf4(codes<uint8_t>(random, 0, 15, size_t(OUTPUTS) * K).data(), random.floats(size_t(OUTPUTS) * K / NF4_BLOCK).data(), OUTPUTS, K, whole.data());
        return whole;
    }
    return out;
}

std::vector<float> product(const Kernels& kernels, Format format, const std::vector<uint8_t>& w, const std::vector<float>& x, int rows) {
    const Act act = kernels.act[format];
    const int per = act_group(act) ? K / act_group(act) : 0;
    std::vector<uint8_t> data(size_t(rows) * K * sizeof(float));
    std::vector<float> scales(size_t(rows) * K), out(size_t(rows) * 2 * STRIP);
    std::vector<int32_t> sums(size_t(rows) * K);
    const Packed a{act, K, size_t(K) * act_bytes(act), data.data(), scales.data(), sums.data(), per};
    for (int row = 0; row < rows; row++) kernels.pack(x.data() + row * INPUTS, nullptr, INPUTS, 0, a, row);
    const Product job{w.data(), strip_bytes(format, INPUTS), a, rows, out.data(), 2 * STRIP, nullptr, STORE};
    kernels.product[format](job, 0, int(strips(OUTPUTS)));
    return out;
}

// Scores and mixed values of a few queries over three tiles.
std::vector<float> attention(const Kernels& kernels, KVType type, int dim, int queries, Random random) {
    constexpr int TILES = 3;
    const size_t width = type == KV_F32 ? 4 : type == KV_BF16 ? 2 : 1;
    std::vector<uint8_t> keys(TILES * 16 * size_t(dim) * width), values(keys.size());
    for (auto* tile : {&keys, &values})
        for (size_t i = 0; i < tile->size() / width; i++) {
            if (type == KV_F32) reinterpret_cast<float*>(tile->data())[i] = random.unit();
            if (type == KV_BF16) reinterpret_cast<uint16_t*>(tile->data())[i] = to_bf16(random.unit());
            if (type == KV_INT8) (*tile)[i] = uint8_t(random.bits());
        }
    const std::vector<float> ones(16, 0.02f), q = random.floats(size_t(queries) * size_t(dim));
    const uint8_t *key_at[TILES], *value_at[TILES];
    const float* scale_at[TILES];
    for (int t = 0; t < TILES; t++) key_at[t] = keys.data() + t * 16 * dim * int(width), value_at[t] = values.data() + t * 16 * dim * int(width), scale_at[t] = ones.data();
    std::vector<float> scores(size_t(queries) * 16 * TILES), mixed(size_t(queries) * size_t(dim)), rows(mixed.size());
    const Act act = type == KV_BF16 ? kernels.kv_act : ACT_F32;
    const size_t stride = size_t(dim) * sizeof(float);
    for (int i = 0; i < queries; i++) kernels.pack_query(act, q.data() + i * dim, dim, reinterpret_cast<uint8_t*>(rows.data()) + i * stride);
    kernels.scores[type]({reinterpret_cast<uint8_t*>(rows.data()), stride, queries, dim, TILES, key_at, scale_at, scores.data(), 16 * TILES});
    std::vector<float> out = scores;
    for (int i = 0; i < queries; i++) {
        float* row = scores.data() + i * 16 * TILES;
        out.push_back(kernels.softmax({row, TILES, 3, 16 * TILES - 5, 0.1f, scale_at, reinterpret_cast<uint8_t*>(row), type}));
    }
    kernels.mix[type]({reinterpret_cast<uint8_t*>(scores.data()), 16 * TILES * sizeof(float), queries, dim, TILES, value_at, mixed.data(), size_t(dim)});
    out.insert(out.end(), mixed.begin(), mixed.end());
    return out;
}

bool alike(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
    float most = 0;
    for (float x : b) most = std::max(most, std::fabs(x));
    for (size_t i = 0; i < a.size(); i++)
        if (!(std::fabs(a[i] - b[i]) <= tolerance * most)) return false;
    return true;
}

}  // namespace

std::string disagreement(const Kernels& kernels, const Kernels& reference) {
    Random random;
    for (int f = 0; f < FORMATS; f++) {
        const auto w = packed(Format(f), random);
        for (int rows : {1, 3, 7, 16, 20, 35}) {
            const auto x = random.floats(size_t(rows) * INPUTS);
            if (!alike(product(kernels, Format(f), w, x, rows), product(reference, Format(f), w, x, rows), 1e-3f))
                return std::string(FORMAT_NAMES[f]) + " products of " + std::to_string(rows) + " rows";
        }
    }
    const char* types[] = {"f32", "bf16", "int8"};
    for (int type = 0; type < KV_TYPES; type++)
        for (int dim : {16, 64, 128})
            for (int queries : {1, 5, 16})
                if (!alike(attention(kernels, KVType(type), dim, queries, random), attention(reference, KVType(type), dim, queries, random), 5e-3f))
                    return std::string("attention over ") + types[type] + " keys, heads of " + std::to_string(dim);
    return "";
}

}  // namespace forerun
