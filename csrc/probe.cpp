#include "probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "memory.h"
#include "pool.h"

namespace forerun {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr size_t STRIP = 256;   // bytes of a stream that are read at a time
constexpr size_t AHEAD = 1024;  // bytes that are asked for before they are read

// How a thread walks through its part: the fastest way is another one on each processor.
struct Way {
    int streams;  // places that are read in turn, for the prefetchers of as many pages
    bool ahead;   // whether lines are asked for before
    int spared;   // threads that do not read, where a core is busy with something else
};

// Bytes that are read of `bytes`: whole strips of each stream.
size_t whole(size_t bytes, int streams) { return bytes / (STRIP * size_t(streams)) * (STRIP * size_t(streams)); }

// Loads of WIDTH bytes into eight chains, so that the memory is what limits it, and not the arithmetic.
#define FORERUN_READER(NAME, WIDTH)                                                           \
    uint64_t NAME(const uint8_t* data, size_t bytes, Way way) {                               \
        typedef uint64_t Words __attribute__((vector_size(WIDTH), aligned(WIDTH)));           \
        const size_t part = bytes / size_t(way.streams);                                      \
        Words sums[8] = {};                                                                   \
        for (size_t at = 0; at < part; at += STRIP)                                           \
            for (int stream = 0; stream < way.streams; stream++) {                            \
                const uint8_t* strip = data + size_t(stream) * part + at;                     \
                if (way.ahead)                                                                \
                    for (size_t i = 0; i < STRIP; i += 64) __builtin_prefetch(strip + AHEAD + i); \
                const Words* words = reinterpret_cast<const Words*>(strip);                   \
                _Pragma("GCC unroll 16") for (size_t i = 0; i < STRIP / WIDTH; i++) sums[i % 8] ^= words[i]; \
            }                                                                                 \
        uint64_t all = 0;                                                                     \
        for (const Words& sum : sums)                                                         \
            for (size_t i = 0; i < WIDTH / 8; i++) all ^= sum[i];                             \
        return all;                                                                           \
    }

FORERUN_READER(read_16, 16)
#if FORERUN_X86
__attribute__((target("avx2"))) FORERUN_READER(read_32, 32)
__attribute__((target("avx512f,prefer-vector-width=512"))) FORERUN_READER(read_64, 64)
#endif

using Reader = uint64_t (*)(const uint8_t*, size_t, Way);

// With the widest loads that the processor has, whatever the kernels are made to use.
Reader widest() {
#if FORERUN_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return read_64;
    if (__builtin_cpu_supports("avx2")) return read_32;
#endif
    return read_16;
}

}  // namespace

double probe(size_t nbytes, double seconds) {
    const size_t bytes = std::max<size_t>(nbytes, 1 << 20);
    Arena arena(bytes);
    std::memset(arena.data(), 1, bytes);
    const Pool::Turn pool;
    const Reader read = widest();
    std::atomic<uint64_t> sink{0};
    double best = 0;
    // Bytes a second of one pass: the median of its pieces, since whoever else uses the machine interrupts some of them.
    const size_t piece = std::min(bytes, std::clamp<size_t>(bytes / 16, size_t(16) << 20, size_t(256) << 20));
    const auto turn = [&](Way way) {
        std::vector<double> speeds;
        for (size_t from = 0; from + piece <= bytes; from += piece) {
            std::atomic<size_t> done{0};
            const double begin = now();
            pool->run(pool->count(), [&](int thread, int threads, Barrier&) {
                const int readers = threads - way.spared;
                if (thread >= readers) return;
                const size_t share = whole(piece / size_t(readers), way.streams);
                sink ^= read(arena.data() + from / STRIP * STRIP + size_t(thread) * share, share, way);
                done += share;
            });
            speeds.push_back(double(done) / (now() - begin));
        }
        std::nth_element(speeds.begin(), speeds.begin() + ptrdiff_t(speeds.size() / 2), speeds.end());
        best = std::max(best, speeds[speeds.size() / 2]);
        return speeds[speeds.size() / 2];
    };
    std::vector<std::pair<double, Way>> ways;
    const double start = now();
    for (int spared : {0, 1})
        if (pool->count() > spared)
            for (int streams : {1, 2, 4})
                for (bool ahead : {false, true}) ways.push_back({turn({streams, ahead, spared}), {streams, ahead, spared}});
    std::sort(ways.begin(), ways.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (size_t i = 0; i < 2 || now() - start < seconds; i++) turn(ways[i % std::min<size_t>(3, ways.size())].second);
    return best;
}

}  // namespace forerun
