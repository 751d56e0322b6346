// One call of a network, shared by all threads that work on it.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/float_flags.h"
#include "base/threads.h"

namespace rbnn {

class Call {
public:
    static constexpr std::size_t kPiece = 1 << 20;  // values between two checks

    Call() = default;
    // `interrupted` is called at most once in each period, and only in the thread that made the call.
    explicit Call(std::function<bool()> interrupted, std::chrono::milliseconds period = std::chrono::milliseconds(100))
        : interrupted_(std::move(interrupted)), period_(period) {}
    Call(const Call&) = delete;

    // Whether to stop.  Every thread checks this between pieces of work; once true, it stays true.  `work` is roughly
    // the number of values in a piece.  The clock is read only after enough of them.
    bool stop(std::size_t work = kPiece) {
        if (stopped()) return true;
        if (!interrupted_ || std::this_thread::get_id() != caller_ || (done_ += work) < kPiece) return false;
        done_ = 0;
        const Clock::time_point now = Clock::now();
        if (now - last_ < period_) return false;
        last_ = now;
        if (interrupted_()) stopped_.store(true, std::memory_order_relaxed);
        return stopped();
    }
    bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

    // Whether a worker thread produced an infinite value or NaN.
    std::atomic<bool> overflowed{false};

private:
    using Clock = std::chrono::steady_clock;

    std::function<bool()> interrupted_;
    std::chrono::milliseconds period_{100};
    std::thread::id caller_ = std::this_thread::get_id();
    Clock::time_point last_ = Clock::now();
    std::size_t done_ = 0;  // values since the clock was last read
    std::atomic<bool> stopped_{false};
};

// parallel_for for arithmetic: overflow in other threads is reported to the call.
template <class Body>
void calculate(std::size_t count, std::size_t grain, int threads, Call& call, const Body& body) {
    if (threads <= 1) {
        if (count > 0) body(0, count);
        return;
    }
    parallel_for(count, grain, threads, [&](std::size_t begin, std::size_t end) {
        const FloatFlags flags;
        body(begin, end);
        if (flags.overflowed()) call.overflowed = true;
    });
}

}  // namespace rbnn
