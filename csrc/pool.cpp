#include "pool.h"

#include <chrono>
#include <utility>

#include "cpu.h"
#include "mode.h"
#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace forerun {
namespace {

constexpr auto WATCH = std::chrono::microseconds(200);  // longer than the Python between two forwards mostly takes

std::mutex turn;
Pool* pool = nullptr;  // never destroyed at the end of the process: a thread may still sleep then
std::atomic<int> wanted{0};  // 0: as many as there are cores
std::atomic<int> made{0};    // 0: there is no pool
std::atomic<int> missing{0}; // threads that could not be made and nobody was told of

#if !defined(_WIN32)
// A fork waits for the forward that runs, so nothing is halfway in the child. Its workers are the parent's: left alone.
[[maybe_unused]] const bool forks_take_turns = pthread_atfork([] { turn.lock(); }, [] { turn.unlock(); }, [] {
                                  pool = nullptr;
                                  made = 0;
                                  turn.unlock();
                              }) == 0;
#endif

int wish() { return wanted > 0 ? wanted.load() : cores(); }

}  // namespace

std::mutex& Pool::between_forwards() { return turn; }

Pool::Turn::Turn() : lock_(turn) {
    if (!pool) {
        pool = new Pool(wish());
        made = pool->count();
    }
    pool_ = pool;
}

void Pool::set_threads(int count) {
    std::lock_guard lock(turn);
    wanted = count;
    if (!pool || pool->asked_ == wish()) return;
    delete pool;
    pool = nullptr;
    made = 0;
}

int Pool::threads() { return made > 0 ? made.load() : wish(); }

std::string Pool::take_note() {
    const int lacking = missing.exchange(0);
    if (!lacking) return "";
    const int got = threads();
    return "the system gave " + std::to_string(got) + " of " + std::to_string(got + lacking) +
           " threads (a limit on processes or memory); forwards run on " + std::to_string(got);
}

Pool::Pool(int count) : asked_(count) {
    workers_.reserve(size_t(count - 1));
    try {
        for (int i = 1; i < count; i++) {
            workers_.push_back(std::make_unique<Worker>());
            Worker& worker = *workers_.back();
            worker.thread = std::thread([this, i, &worker] { work(i, worker); });
        }
    } catch (const std::exception&) {  // no more threads, or no memory for them: those that are there do it
        if (!workers_.empty() && !workers_.back()->thread.joinable()) workers_.pop_back();
        missing = count - this->count();
    }
}

Pool::~Pool() {
    job_ = nullptr;
    for (auto& worker : workers_) call(*worker);
    for (auto& worker : workers_) worker->thread.join();
}

void Pool::call(Worker& worker) {
    worker.jobs.fetch_add(1, std::memory_order_seq_cst);
    if (!worker.asleep.load(std::memory_order_seq_cst)) return;
    std::lock_guard lock(worker.sleep);  // it has looked at `jobs` and waits, or has not looked yet
    worker.wake.notify_one();
}

void Pool::take_part(int thread) {
    try {
        (*job_)(thread, threads_, barrier_);
    } catch (const Barrier::Left&) {
    } catch (...) {
        {
            std::lock_guard lock(fault_lock_);
            if (!fault_) fault_ = std::current_exception();
        }
        barrier_.leave();
    }
}

void Pool::run(int threads, const Job& job) {
    const FloatMode mode;
    job_ = &job;
    threads_ = threads;
    done_.store(0, std::memory_order_relaxed);
    for (int i = 1; i < threads; i++) call(*workers_[size_t(i - 1)]);
    take_part(0);
    for (int spins = 0; done_.load(std::memory_order_acquire) != threads - 1;)  // then nobody looks at the job any more
        spins < 4000 ? spins++, relax() : std::this_thread::yield();
    if (!barrier_.left()) return;
    barrier_.mend();
    std::rethrow_exception(std::exchange(fault_, nullptr));
}

void Pool::work(int thread, Worker& self) {
    const FloatMode mode;
    for (unsigned seen = 0;; seen++) {
        const auto until = std::chrono::steady_clock::now() + WATCH;
        for (int spins = 0; self.jobs.load(std::memory_order_acquire) == seen;) {
            relax();
            if (++spins % 64 || std::chrono::steady_clock::now() < until) continue;
            std::unique_lock lock(self.sleep);
            self.asleep.store(true, std::memory_order_seq_cst);
            self.wake.wait(lock, [&] { return self.jobs.load(std::memory_order_seq_cst) != seen; });
            self.asleep.store(false, std::memory_order_seq_cst);
        }
        if (!job_) return;
        take_part(thread);
        done_.fetch_add(1, std::memory_order_acq_rel);
    }
}

}  // namespace forerun
