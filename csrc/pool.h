// The threads that a forward runs on: all of them walk through the same operations and meet at barriers.
//
// Between forwards workers watch for the next one a moment, then sleep. A forward asks them all at once, so two callers
// take turns. After a fork the child has no workers; it makes its own when it needs them.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace forerun {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Everybody waits for the last to arrive. Waiters spin, and give way when that takes long: the machine may be shared.
class Barrier {
  public:
    void meet(int count) {
        if (count == 1) return;
        const int turn = turn_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == count - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            turn_.store(turn + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; turn_.load(std::memory_order_acquire) == turn; spins++)
            spins < 4000 ? relax() : std::this_thread::yield();
    }

  private:
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<int> turn_{0};
};

class Pool {
  public:
    using Job = std::function<void(int thread, int threads, Barrier&)>;

    static std::shared_ptr<Pool> get();  // of this process
    static void set_threads(int count);
    static int threads();

    int count() const { return count_; }
    void run(const Job& job);  // on all threads, the caller's among them, until all are done
    ~Pool();

  private:
    explicit Pool(int count);
    void work(int thread);

    const int count_;
    std::mutex turn_;  // one job at a time
    Barrier barrier_;
    const Job* job_ = nullptr;
    alignas(64) std::atomic<unsigned> jobs_{0};
    std::atomic<bool> stop_{false};
    std::mutex sleep_;
    std::condition_variable wake_;
    std::atomic<int> asleep_{0};
    std::vector<std::thread> workers_;
};

}  // namespace forerun
