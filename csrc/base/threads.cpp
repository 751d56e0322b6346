#include "base/threads.h"

#if !defined(_WIN32)
#include <dlfcn.h>
#include <pthread.h>
#endif

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace rbnn {
namespace {

// Waits about 30 µs for something that is about to happen, without giving up the core.  A sleeping thread takes as long
// to wake up as a whole layer takes to run.
template <class Condition>
bool spin(const Condition& condition) {
    for (int i = 0; i < 2000; ++i) {
        if (condition()) return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }
    return condition();
}

// The pool is never destroyed: its workers sleep until the process ends.
class Pool {
public:
    // Serves one caller at a time.  A second caller gets false and does its work alone.
    bool run(std::size_t parts, int threads, const std::function<void(std::size_t)>& part) {
        std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
        if (!turn.owns_lock()) return false;
        try {
            while (static_cast<int>(workers_.size()) < threads - 1)
                workers_.emplace_back([this, id = workers_.size()] { work(id); });
        } catch (const std::system_error&) {  // the system allows no more threads: the existing ones do the work
            threads = static_cast<int>(workers_.size()) + 1;
        }
        part_ = &part;
        parts_ = parts;
        next_.store(0, std::memory_order_relaxed);
        busy_.store(threads - 1, std::memory_order_relaxed);
        {
            std::lock_guard<std::mutex> lock(mutex_);  // no worker may fall asleep between its check and the wake-up
            const auto helpers = static_cast<std::uint32_t>(threads - 1);
            round_.store({round_.load().number + 1, helpers}, std::memory_order_release);
        }
        wake_.notify_all();
        take_parts(part, parts);
        const auto done = [this] { return busy_.load(std::memory_order_acquire) == 0; };
        if (!spin(done)) {
            std::unique_lock<std::mutex> lock(mutex_);
            done_.wait(lock, done);
        }
        return true;
    }

private:
    // The number of a round and how many workers take part.  Both are in one atomic value, so that a worker that does
    // not take part reads nothing that the next round may be changing.  Without the alignment to its size, Clang would
    // call libatomic, which is not linked.
    struct alignas(8) Round {
        std::uint32_t number, helpers;
    };

    void take_parts(const std::function<void(std::size_t)>& part, std::size_t parts) {
        for (std::size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < parts;) part(i);
    }

    [[noreturn]] void work(std::size_t id) {
        std::uint32_t seen = 0;
        for (;;) {
            const auto called = [&] { return round_.load(std::memory_order_acquire).number != seen; };
            if (!spin(called)) {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, called);
            }
            const Round round = round_.load(std::memory_order_acquire);
            seen = round.number;
            if (id >= round.helpers) continue;
            take_parts(*part_, parts_);
            if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
                std::lock_guard<std::mutex> lock(mutex_);
                done_.notify_one();
            }
        }
    }

    std::mutex turn_, mutex_;
    std::condition_variable wake_, done_;
    std::vector<std::thread> workers_;
    const std::function<void(std::size_t)>* part_ = nullptr;
    std::size_t parts_ = 0;
    std::atomic<std::size_t> next_{0};
    std::atomic<int> busy_{0};
    std::atomic<Round> round_{Round{0, 0}};
};

Pool& pool = *new Pool;
std::recursive_mutex& shared_state = *new std::recursive_mutex;

#if !defined(_WIN32)
bool forked = false;

// A forked child has the memory of its parent but only the thread that forked: the workers are gone, and locks that
// other threads held stay locked.  The child therefore gets a new pool and a new lock in the same places.
void begin_child() {
    new (&pool) Pool;
    new (&shared_state) std::recursive_mutex;  // unlocking would fail: the child's thread id is not that of the owner
    forked = true;
}

[[maybe_unused]] const int registered =
    pthread_atfork([] { shared_state.lock(); }, [] { shared_state.unlock(); }, begin_child);
#endif

// If the host program, such as torch, has loaded an OpenMP runtime, its team does the work.  Two pools on the same
// cores slow each other down, because the team's threads spin for a while after each of the host's own loops.  A
// forked process does not use the team: its runtime would wait for the parent's team forever.
#if defined(_WIN32)
bool run_on_openmp_team(std::size_t, int, const std::function<void(std::size_t)>&) { return false; }
#else
bool run_on_openmp_team(std::size_t parts, int threads, const std::function<void(std::size_t)>& part) {
    if (forked) return false;
    using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
    static const auto parallel = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    if (parallel == nullptr) return false;
    struct Work {
        const std::function<void(std::size_t)>& part;
        std::size_t parts;
        std::atomic<std::size_t> next{0};
    } work{part, parts};
    const auto take = [](void* data) {
        Work& shared = *static_cast<Work*>(data);
        for (std::size_t i; (i = shared.next.fetch_add(1, std::memory_order_relaxed)) < shared.parts;) shared.part(i);
    };
    parallel(take, &work, static_cast<unsigned>(threads), 0);
    return true;
}
#endif

}  // namespace

std::recursive_mutex& shared_lock() { return shared_state; }

int useful_threads(int threads) {
    static const int cores = static_cast<int>(std::thread::hardware_concurrency());
    return std::min(threads, std::max(cores, 8));
}

void parallel_for(std::size_t count, std::size_t grain, int threads,
                  const std::function<void(std::size_t, std::size_t)>& body) {
    if (count == 0) return;
    // There are more parts than threads, so that a thread delayed by another process does not delay the rest.
    const std::size_t most = static_cast<std::size_t>(std::max(threads, 1)) * 8;
    const std::size_t parts = std::min(most, std::max<std::size_t>(count / std::max<std::size_t>(grain, 1), 1));
    const std::size_t each = (count + parts - 1) / parts;
    if (threads <= 1 || parts == 1) return body(0, count);
    // An exception must not leave a part: it would end a worker, and with it the process.
    std::exception_ptr thrown;
    std::mutex thrown_lock;
    const std::function<void(std::size_t)> part = [&](std::size_t i) {
        const std::size_t begin = i * each, end = std::min(count, begin + each);
        if (begin >= end) return;
        try {
            body(begin, end);
        } catch (...) {
            const std::lock_guard<std::mutex> lock(thrown_lock);
            thrown = std::current_exception();
        }
    };
    if (!run_on_openmp_team(parts, threads, part) && !pool.run(parts, threads, part)) return body(0, count);
    if (thrown) std::rethrow_exception(thrown);
}

}  // namespace rbnn
