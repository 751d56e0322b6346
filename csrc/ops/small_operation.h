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

// Calls body(row) in parallel for rows of `values` values each.
template <class Body>
void over_rows(const Workspace& work, std::size_t rows, std::size_t values, const Body& body) {
    calculate(rows, std::max<std::size_t>(kGrain / std::max<std::size_t>(values, 1), 1), work.threads, work.call,
              [&](std::size_t begin, std::size_t end) {
                  for (std::size_t row = begin; row < end && !work.call.stop(values); ++row) body(row);
              });
}

}  // namespace rbnn
