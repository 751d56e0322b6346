// Reductions over some axes, such as sums and maxima, and normalisations that use them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/operations.h"
#include "ops/small_operation.h"

namespace rbnn {
namespace {

// The cell that each value belongs to.  Values that are reduced together share a cell.
class Cells {
public:
    Cells(const Buffer& in, Axes over, std::size_t groups) : in_(in) {
        pixel_ = over.channels ? groups : in.channels;
        column_ = over.width ? 0 : pixel_;
        row_ = over.height ? 0 : pixel_ * (over.width ? 1 : in.width);
        count_ = pixel_ * (over.width ? 1 : in.width) * (over.height ? 1 : in.height);
    }
    std::size_t count() const { return count_; }
    std::size_t values_of_each() const { return in_.values() / count_; }

    // Calls body(cell) for each cell.
    template <class Body>
    void each(const Workspace& work, const Body& body) const {
        in_pieces(work, count_, 1, [&](std::size_t begin, std::size_t end) {
            for (std::size_t cell = begin; cell < end; ++cell) body(cell);
        });
    }

    // Calls body(cell, place) for each value, in memory order.
    template <class Body>
    void over(const Workspace& work, const Body& body) const {
        const std::size_t cells = pixel_, each = in_.channels / cells;
        for (std::size_t y = 0; y < in_.height && !work.call.stop(in_.width * in_.channels); ++y)
            in_pieces(work, in_.width, in_.channels, [&](std::size_t begin, std::size_t end) {
                std::size_t place = (y * in_.width + begin) * in_.channels;
                for (std::size_t x = begin; x < end; ++x) {
                    const std::size_t first = y * row_ + x * column_;
                    if (each == 1) {  // a loop that compilers vectorise
                        for (std::size_t i = 0; i < cells; ++i) body(first + i, place + i);
                        place += cells;
                    } else {
                        for (std::size_t cell = first; cell < first + cells; ++cell)
                            for (const std::size_t last = place + each; place < last; ++place) body(cell, place);
                    }
                }
            });
    }

private:
    const Buffer& in_;
    std::size_t pixel_, row_, column_, count_;  // cells of a pixel; steps between rows and between columns; all cells
};

// An operation that keeps `numbers` doubles for each cell while it runs.
template <class Body>
class Cellwise final : public Operation {
public:
    Cellwise(Cells cells, std::size_t numbers, Body body) : cells_(std::move(cells)), body_(std::move(body)) {
        scratch_bytes = numbers * cells_.count() * sizeof(double);
    }
    void run(const Workspace& work) const override {
        body_(work, cells_, reinterpret_cast<double*>(work.arena + scratch_offset));
    }

private:
    Cells cells_;
    Body body_;
};

template <class Body>
Made cellwise(const Buffer& in, Axes over, std::size_t groups, std::size_t numbers, Body body) {
    return std::make_unique<Cellwise<Body>>(Cells(in, over, groups), numbers, std::move(body));
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

Made make_reduction(const Buffer& in, const Buffer& out, Axes over, Reduction how) {
    return cellwise(in, over, 1, 1, [&in, &out, how](const Workspace& work, const Cells& cells, double* found) {
        const float* x = work.floats(in);
        const double start = how == Reduction::max ? -kInfinity : how == Reduction::min ? kInfinity : 0.0;
        cells.each(work, [=](std::size_t cell) { found[cell] = start; });
        if (how == Reduction::max)
            cells.over(work, [&](std::size_t cell, std::size_t i) {
                found[cell] = std::max(found[cell], static_cast<double>(x[i]));
            });
        else if (how == Reduction::min)
            cells.over(work, [&](std::size_t cell, std::size_t i) {
                found[cell] = std::min(found[cell], static_cast<double>(x[i]));
            });
        else
            cells.over(work, [&](std::size_t cell, std::size_t i) { found[cell] += static_cast<double>(x[i]); });
        if (work.call.stopped()) return;
        const double count = how == Reduction::mean ? static_cast<double>(cells.values_of_each()) : 1.0;
        float* to = work.floats(out);
        cells.each(work, [=](std::size_t cell) { to[cell] = static_cast<float>(found[cell] / count); });
    });
}

Made make_softmax(const Buffer& in, const Buffer& out, Axes over, bool log) {
    return cellwise(in, over, 1, 2, [&in, &out, log](const Workspace& work, const Cells& cells, double* most) {
        const float* x = work.floats(in);
        float* to = work.floats(out);
        double* total = most + cells.count();
        cells.each(work, [=](std::size_t cell) { most[cell] = -kInfinity, total[cell] = 0.0; });
        cells.over(work, [&](std::size_t cell, std::size_t i) {
            most[cell] = std::max(most[cell], static_cast<double>(x[i]));
        });
        if (work.call.stopped()) return;
        cells.over(work, [&](std::size_t cell, std::size_t i) {
            total[cell] += std::exp(static_cast<double>(x[i]) - most[cell]);
        });
        if (work.call.stopped()) return;
        if (log)
            cells.over(work, [&](std::size_t cell, std::size_t i) {
                to[i] = static_cast<float>(static_cast<double>(x[i]) - most[cell] - std::log(total[cell]));
            });
        else
            cells.over(work, [&](std::size_t cell, std::size_t i) {
                to[i] = static_cast<float>(std::exp(static_cast<double>(x[i]) - most[cell]) / total[cell]);
            });
    });
}

Made make_standardize(const Buffer& in, const Buffer& out, Axes over, std::size_t groups, double eps) {
    return cellwise(in, over, groups, 2, [&in, &out, eps](const Workspace& work, const Cells& cells, double* mean) {
        const float* x = work.floats(in);
        float* to = work.floats(out);
        double* spread = mean + cells.count();
        const auto count = static_cast<double>(cells.values_of_each());
        cells.each(work, [=](std::size_t cell) { mean[cell] = spread[cell] = 0.0; });
        cells.over(work, [&](std::size_t cell, std::size_t i) { mean[cell] += static_cast<double>(x[i]); });
        cells.each(work, [=](std::size_t cell) { mean[cell] /= count; });
        cells.over(work, [&](std::size_t cell, std::size_t i) {
            const double centred = static_cast<double>(x[i]) - mean[cell];
            spread[cell] += centred * centred;
        });
        if (work.call.stopped()) return;
        cells.each(work, [=](std::size_t cell) { spread[cell] = std::sqrt(spread[cell] / count + eps); });
        cells.over(work, [&](std::size_t cell, std::size_t i) {
            to[i] = static_cast<float>((static_cast<double>(x[i]) - mean[cell]) / spread[cell]);
        });
    });
}

Made make_local_norm(const Buffer& in, const Buffer& out, const LocalNorm& norm) {
    return small([&in, &out, norm](const Workspace& work) {
        const std::size_t before = norm.window / 2, after = (norm.window - 1) / 2;
        over_rows(work, in.pixels(), in.channels * std::min(norm.window, in.channels), [&](std::size_t pixel) {
            const float* x = work.floats(in) + pixel * in.channels;
            float* to = work.floats(out) + pixel * in.channels;
            for (std::size_t c = 0; c < in.channels; ++c) {
                double sum = 0.0;
                const std::size_t last = std::min(in.channels - 1, c + after);
                for (std::size_t i = c < before ? 0 : c - before; i <= last; ++i)
                    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
                const double scale = norm.k + norm.alpha * sum / static_cast<double>(norm.window);
                to[c] = static_cast<float>(static_cast<double>(x[c]) / std::pow(scale, norm.beta));
                if (work.call.stop(std::min(norm.window, in.channels))) return;
            }
        });
    });
}

Made make_matmul(const Buffer& a, const Buffer& b, const Buffer& out) {
    return small([&a, &b, &out](const Workspace& work) {
        constexpr std::size_t kSums = 256;
        const std::size_t channels = out.channels, row = out.width * channels, terms = a.width;
        // One run of an output row at a time.  If a pixel has several channels, a run ends with the pixel.
        const std::size_t whole = channels == 1 ? row : channels, runs = (whole + kSums - 1) / kSums;
        const std::size_t runs_of_row = row / whole * runs;
        over_rows(work, out.height * runs_of_row, std::min(whole, kSums) * terms, [&](std::size_t run) {
            const std::size_t y = run / runs_of_row, pixel = run % runs_of_row / runs, c = run % runs * kSums;
            const std::size_t first = pixel * whole + c, n = std::min(kSums, whole - c);
            const float *left = work.floats(a) + y * terms * channels, *right = work.floats(b);
            double sums[kSums] = {};
            for (std::size_t k = 0; k < terms; ++k) {
                const float *l = left + k * channels, *r = right + k * row + first;
                if (channels == 1)
                    for (std::size_t i = 0; i < n; ++i) sums[i] += static_cast<double>(*l) * static_cast<double>(r[i]);
                else
                    for (std::size_t i = 0; i < n; ++i)
                        sums[i] += static_cast<double>(l[c + i]) * static_cast<double>(r[i]);
            }
            float* to = work.floats(out) + y * row + first;
            for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<float>(sums[i]);
        });
    });
}

}  // namespace rbnn
