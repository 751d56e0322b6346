#include "ops/row_sums.h"

namespace rbnn {
namespace {

constexpr std::size_t kShortestRow = 16, kLargestWeight = std::size_t{1} << 14, kFewestRows = 8;

// Row `row` of a plane of the operand, times the sum of some rows of the weights.
struct Term {
    std::size_t plane, row;
    std::vector<RowSum::Share> shares;
};
using Terms = std::vector<Term>;

// The upper, lower and shared sum of two rows `distance` apart.  `plane`: how much further the differences lie.
void split(const Terms& terms, std::size_t distance, std::size_t plane, Terms (&parts)[3]) {
    std::vector<bool> done(terms.size());
    for (std::size_t i = 0; i < terms.size(); ++i) {
        if (done[i]) continue;
        const Term& term = terms[i];
        std::vector<RowSum::Share> both = term.shares;
        for (std::size_t j = i + 1; j < terms.size(); ++j) {
            if (done[j] || terms[j].plane != term.plane || terms[j].row != term.row + distance) continue;
            done[j] = true;
            Term lower{term.plane + plane, terms[j].row, terms[j].shares};
            for (RowSum::Share& share : lower.shares) {
                both.push_back(share);
                share.factor = -share.factor;
            }
            parts[1].push_back(std::move(lower));
            break;
        }
        parts[0].push_back({term.plane + plane, term.row, term.shares});
        parts[2].push_back({term.plane, term.row + distance, std::move(both)});
    }
}

// Rows of the picture in the operand, margins included, and of each kind of differences.
std::size_t plane_rows(const Geometry& geometry) { return geometry.y.padded() + 4 * geometry.y.stride; }

}  // namespace

bool fours_pay(const Geometry& geometry, std::size_t channels, std::size_t outputs) {
    const std::size_t row = geometry.x.kernel * channels;
    return geometry.y.dilation == 1 && geometry.x.dilation == 1 && geometry.y.kernel > geometry.y.stride &&
           geometry.y.count >= kFewestRows && row >= kShortestRow && row * geometry.y.kernel * outputs <= kLargestWeight;
}

RowSums lay_out_sum(const Geometry& geometry, std::size_t row, std::size_t pixel, std::size_t tap, std::size_t value) {
    Taps taps = lay_out(geometry, row, pixel, tap);
    std::size_t all = 0;
    for (const Segment& segment : taps.segments) all += segment.length;
    return {std::move(taps.offsets), {RowSum{std::move(taps.segments), all / value, {{{0, 1}}}}}};
}

std::size_t difference_rows(const Geometry& geometry) { return 4 * plane_rows(geometry); }

RowSums lay_out_differences(const Geometry& geometry, std::size_t row, std::size_t pixel) {
    RowSums sums;
    const std::size_t run = geometry.x.kernel * pixel, stride = geometry.y.stride, rows = plane_rows(geometry);
    Terms kernel, twos[3];
    for (std::size_t r = 0; r < geometry.y.kernel; ++r) kernel.push_back({0, r, {{r, 1}}});
    split(kernel, 2 * stride, 2, twos);
    for (const Terms& two : twos) {
        Terms ones[3];
        split(two, stride, 1, ones);
        for (Terms& one : ones) {
            RowSum sum{{}, run, {}};
            for (Term& term : one) {
                sum.segments.push_back({static_cast<std::uint32_t>((term.plane * rows + term.row) * row),
                                         static_cast<std::uint32_t>(run)});
                sum.rows.push_back(std::move(term.shares));
            }
            sums.all.push_back(std::move(sum));
        }
    }
    for (std::size_t y = 0; y < geometry.y.count; y += 4)
        for (std::size_t x = 0; x < geometry.x.count; ++x)
            sums.offsets.push_back(static_cast<std::uint32_t>(geometry.y.start(y) * row + geometry.x.start(x) * pixel));
    return sums;
}

void make_differences(const Geometry& geometry, std::size_t row, float* operand, int threads, Call& call) {
    const std::size_t rows = plane_rows(geometry), stride = geometry.y.stride, padded = geometry.y.padded();
    std::fill_n(operand + padded * row, (rows - padded) * row, 0.0f);
    const auto subtract = [&](std::size_t from, std::size_t to, std::size_t distance) {
        float *x = operand + from * rows * row, *result = operand + to * rows * row;
        calculate(rows - distance, 16, threads, call, [&](std::size_t begin, std::size_t end) {
            const float *above = x + begin * row, *below = above + distance * row;
            for (std::size_t i = 0; i < (end - begin) * row; ++i) result[begin * row + i] = above[i] - below[i];
        });
        // Only output rows that do not exist, below the last of a number that is no multiple of four, look there.
        std::fill_n(result + (rows - distance) * row, distance * row, 0.0f);
    };
    subtract(0, 1, stride);
    subtract(0, 2, 2 * stride);
    subtract(2, 3, stride);
}

}  // namespace rbnn
