// Whatever a thread of a forward throws is thrown by the call, and the pool lives; its barrier's counter may wrap round.
#include <cstdio>
#include <new>
#include <stdexcept>

#include "pool.h"

namespace forerun {
int cores() { return 4; }
}  // namespace forerun

using namespace forerun;

#define EXPECT(what) \
    if (!(what)) return std::printf("not so: %s (line %d)\n", #what, __LINE__), 1

// Meets as often as it is told to; thread `fails` throws before its meeting number `at`.
static int met(int threads, int meetings, int fails, int at) {
    std::atomic<int> whole{0};
    const Pool::Turn pool;
    pool->run(threads, [&](int thread, int count, Barrier& barrier) {
        for (int i = 0; i < meetings; i++) {
            if (thread == fails && i == at) throw std::bad_alloc();
            barrier.meet(count);
        }
        whole++;
    });
    return whole;
}

int main() {
    const int threads = 4;
    Pool::set_threads(threads);
    for (int round = 0; round < 200; round++)
        for (int fails = 0; fails < threads; fails++) {
            bool thrown = false;
            try {
                met(threads, 3, fails, round % 3);
            } catch (const std::bad_alloc&) {
                thrown = true;
            }
            EXPECT(thrown);
            EXPECT(met(threads, 3, -1, 0) == threads);
            EXPECT(met(2, 1, -1, 0) == 2);
        }
    EXPECT(met(threads, 2000, -1, 0) == threads);  // past the counter's end
    std::puts("so");
}
