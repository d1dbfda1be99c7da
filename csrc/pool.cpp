#include "pool.h"

#include <chrono>

#include "cpu.h"
#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace forerun {
namespace {

constexpr auto WATCH = std::chrono::microseconds(200);  // longer than the Python between two forwards mostly takes

std::mutex guard;
auto* pool = new std::shared_ptr<Pool>;  // never destroyed: a thread may still sleep when the process ends
int wanted = 0;  // 0: as many as there are cores

void forget_after_fork() {
    pool = new std::shared_ptr<Pool>;  // the old one's threads are the parent's, and its mutexes may be locked: left alone
    new (&guard) std::mutex;
}

}  // namespace

std::shared_ptr<Pool> Pool::get() {
    std::lock_guard lock(guard);
#if !defined(_WIN32)
    static const bool once = pthread_atfork(nullptr, nullptr, forget_after_fork) == 0;
    (void)once;
#endif
    if (!*pool) pool->reset(new Pool(wanted > 0 ? wanted : cores()));
    return *pool;
}

void Pool::set_threads(int count) {
    std::shared_ptr<Pool> old;  // ends when its last forward has, and after the lock is given back
    std::lock_guard lock(guard);
    wanted = count;
    if (*pool && (*pool)->count_ != (count > 0 ? count : cores())) old.swap(*pool);
}

int Pool::threads() {
    std::lock_guard lock(guard);
    return *pool ? (*pool)->count_ : wanted > 0 ? wanted : cores();
}

Pool::Pool(int count) : count_(count) {
    for (int i = 1; i < count_; i++) workers_.emplace_back([this, i] { work(i); });
}

Pool::~Pool() {
    std::lock_guard turn(turn_);
    {
        std::lock_guard lock(sleep_);
        stop_ = true;
    }
    jobs_.fetch_add(1, std::memory_order_release);
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
}

void Pool::run(const Job& job) {
    std::lock_guard turn(turn_);
    if (count_ > 1) {
        job_ = &job;
        jobs_.fetch_add(1, std::memory_order_seq_cst);
        if (asleep_.load(std::memory_order_seq_cst)) {
            std::lock_guard lock(sleep_);
            wake_.notify_all();
        }
    }
    job(0, count_, barrier_);
    barrier_.meet(count_);  // nobody looks at the job any more: it is the caller's
}

void Pool::work(int thread) {
    unsigned seen = 0;
    while (true) {
        const auto until = std::chrono::steady_clock::now() + WATCH;
        int spins = 0;
        while (jobs_.load(std::memory_order_acquire) == seen) {
            relax();
            if (++spins % 64 == 0 && std::chrono::steady_clock::now() > until) {
                std::unique_lock lock(sleep_);
                asleep_.fetch_add(1, std::memory_order_seq_cst);
                wake_.wait(lock, [&] { return jobs_.load(std::memory_order_seq_cst) != seen; });
                asleep_.fetch_sub(1, std::memory_order_seq_cst);
            }
        }
        seen++;
        if (stop_) return;
        (*job_)(thread, count_, barrier_);
        barrier_.meet(count_);
    }
}

}  // namespace forerun
