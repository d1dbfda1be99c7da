#include "probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "memory.h"
#include "pool.h"

namespace forerun {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Reads whole cache lines; four chains, so that the memory is what limits it.
uint64_t read(const uint8_t* data, size_t bytes) {
    typedef uint64_t Words __attribute__((vector_size(64), aligned(64)));
    const Words* at = reinterpret_cast<const Words*>(data);
    Words sums[4] = {};
    for (size_t i = 0; i + 4 <= bytes / 64; i += 4) {
        __builtin_prefetch(data + 64 * i + 4096);
        for (int j = 0; j < 4; j++) sums[j] ^= at[i + size_t(j)];
    }
    uint64_t all = 0;
    for (const Words& sum : sums)
        for (int i = 0; i < 8; i++) all ^= sum[i];
    return all;
}

}  // namespace

double probe(size_t nbytes, double seconds) {
    const size_t bytes = std::max<size_t>(nbytes, 1 << 20);
    Arena arena(bytes);
    std::memset(arena.data(), 1, bytes);
    const auto pool = Pool::get();
    std::atomic<uint64_t> sink{0};
    double best = 1e30;
    const double start = now();
    for (int turn = 0; turn < 2 || now() - start < seconds; turn++) {
        const double begin = now();
        pool->run([&](int thread, int threads, Barrier&) {
            const size_t first = bytes * size_t(thread) / size_t(threads) / 256 * 256, end = bytes * size_t(thread + 1) / size_t(threads) / 256 * 256;
            sink ^= read(arena.data() + first, end - first);
        });
        best = std::min(best, now() - begin);
    }
    return double(bytes) / best;
}

}  // namespace forerun
