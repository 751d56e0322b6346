// A small operation is a closure over buffers and copies of its tensors.
#pragma once
#include <algorithm>
#include <functional>

#include "base/threads.h"
#include "ops/operation.h"

namespace rbnn {

class Small final : public Operation {
public:
    explicit Small(std::function<void(const Workspace&)> body) : body_(std::move(body)) {}
    void run(const Workspace& work) const override { body_(work); }

private:
    std::function<void(const Workspace&)> body_;
};

template <class Body>
Made small(Body body) {
    return std::make_unique<Small>(std::move(body));
}

constexpr std::size_t kGrain = 1 << 15;  // values per part; less is not worth another thread

constexpr std::size_t kRound = 1 << 27;  // values that several threads process before all of them meet

// Calls body(row) in parallel for rows of `values` values each.  Only the calling thread notices an interruption, and
// not while it waits for the others.  Therefore they never have much left to do: a large operation has several rounds.
template <class Body>
void over_rows(const Workspace& work, std::size_t rows, std::size_t values, const Body& body) {
    values = std::max<std::size_t>(values, 1);
    const std::size_t grain = std::max<std::size_t>(kGrain / values, 1), round = std::max(kRound / values, grain);
    for (std::size_t first = 0; first < rows && !work.call.stopped(); first += round)
        calculate(std::min(rows - first, round), grain, work.threads, work.call,
                  [&](std::size_t begin, std::size_t end) {
                      for (std::size_t row = first + begin; row < first + end && !work.call.stop(values); ++row)
                          body(row);
                  });
}

// Calls body(begin, end) for pieces of `count` items of `values` values each, one piece after the other, and checks for
// an interruption between them.
template <class Body>
void in_pieces(const Workspace& work, std::size_t count, std::size_t values, const Body& body) {
    const std::size_t piece = std::max<std::size_t>(Call::kPiece / std::max<std::size_t>(values, 1), 1);
    for (std::size_t begin = 0; begin < count && !(begin > 0 && work.call.stop()); begin += piece)
        body(begin, std::min(count, begin + piece));
}

}  // namespace rbnn
