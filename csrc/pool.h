// The threads that a forward runs on: all of them walk through the same operations and meet at barriers.
//
// A forward asks for a number of them, and the others sleep on. Between forwards workers watch for the next one a moment,
// then sleep. Forwards take turns, and so does whatever may not happen in the middle of one: a change of the number of
// threads, a fork. After a fork the child has no workers; it makes its own when it needs them.
#pragma once
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
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
// Whoever cannot go on leaves, and then all do: waiting, or arriving, throws `Left`.
class Barrier {
  public:
    struct Left {};

    void meet(int count) {
        if (count == 1) return;
        const unsigned turn = turn_.load(std::memory_order_acquire);
        if (turn & LEFT) throw Left{};
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == count - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            turn_.fetch_add(2, std::memory_order_release);
            return;
        }
        unsigned now;
        for (int spins = 0; (now = turn_.load(std::memory_order_acquire)) == turn;)
            spins < 4000 ? spins++, relax() : std::this_thread::yield();
        if (now == (turn | LEFT)) throw Left{};
    }
    void leave() { turn_.fetch_or(LEFT, std::memory_order_release); }
    bool left() const { return turn_.load(std::memory_order_relaxed) & LEFT; }
    void mend() {  // when nobody is near
        arrived_.store(0, std::memory_order_relaxed);
        turn_.fetch_and(~LEFT, std::memory_order_release);
    }

  private:
    static constexpr unsigned LEFT = 1;
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> turn_{0u - 512};  // it wraps round sooner or later, so better at once
};

class Pool {
  public:
    using Job = std::function<void(int thread, int threads, Barrier&)>;

    // The process's pool for as long as this lives; others wait.
    class Turn {
      public:
        Turn();
        Pool* operator->() const { return pool_; }

      private:
        std::lock_guard<std::mutex> lock_;
        Pool* pool_;
    };
    // The same without need of a pool.
    static std::mutex& between_forwards();

    static void set_threads(int count);
    static int threads();
    // What to say of threads that could not be made, once; empty if there is nothing.
    static std::string take_note();

    int count() const { return int(workers_.size()) + 1; }
    // On the first `threads` of them, the caller among them, until all are done; what one throws is thrown here.
    void run(int threads, const Job& job);
    ~Pool();

  private:
    struct Worker {
        alignas(64) std::atomic<unsigned> jobs{0};
        std::atomic<bool> asleep{false};
        std::mutex sleep;
        std::condition_variable wake;
        std::thread thread;
    };
    explicit Pool(int count);
    void work(int thread, Worker& self);
    void take_part(int thread);
    static void call(Worker& worker);

    const int asked_;
    Barrier barrier_;
    const Job* job_ = nullptr;  // null: an end
    int threads_ = 1;
    alignas(64) std::atomic<int> done_{0};
    std::mutex fault_lock_;
    std::exception_ptr fault_;
    std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace forerun
