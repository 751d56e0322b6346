#include "ops/row_sums.h"

namespace rbnn {
namespace {

// How much larger the values in the other three of four windows may be than those in one window.  The error grows by
// the same factor.
constexpr float kRange = 16.0f;
// Beyond this, differences and their products might overflow.
constexpr float kTooLarge = 1e30f;
constexpr std::size_t kSpan = 1024;   // values of a row that are examined together
constexpr std::size_t kMostRows = 64;  // of a kernel
constexpr std::size_t kShortestRow = 16, kLargestWeight = std::size_t{1} << 14, kFewestRows = 8;

// Row `row` of a plane of the operand, multiplied by a sum of rows of the weights.
struct Term {
    std::size_t plane, row;
    std::vector<RowSum::Share> shares;
};
using Terms = std::vector<Term>;

// The upper, lower and shared sum of two rows `distance` apart.  `plane` is the offset of the plane of differences.
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

// The largest |x| of the image in the operand.
float largest_of_picture(const Kernels& kernels, const Geometry& geometry, std::size_t row, const float* operand) {
    alignas(64) float seen[kSpan];
    const float *pieces[kMostRows], *end = operand + geometry.y.padded() * row;
    float largest = 0.0f;
    while (operand != end) {
        const std::size_t length = std::min(kSpan, static_cast<std::size_t>(end - operand));
        std::size_t count = 0;
        for (; count < kMostRows && operand + length <= end; operand += length) pieces[count++] = operand;
        kernels.largest_of_rows(pieces, count, length, seen);
        largest = std::max(largest, *std::max_element(seen, seen + length));
    }
    return largest;
}

// The number of rows of the padded image in the operand, and of each kind of differences.
std::size_t plane_rows(const Geometry& geometry) { return geometry.y.padded() + 4 * geometry.y.stride; }

}  // namespace

bool fours_pay(const Geometry& geometry, std::size_t channels, std::size_t outputs) {
    const std::size_t row = geometry.x.kernel * channels;
    return geometry.y.dilation == 1 && geometry.x.dilation == 1 && geometry.y.kernel > geometry.y.stride &&
           geometry.y.kernel <= kMostRows && geometry.y.count >= kFewestRows && row >= kShortestRow &&
           row <= kSpan / 2 && row * geometry.y.kernel * outputs <= kLargestWeight;
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

void make_differences(const Kernels& kernels, const Geometry& geometry, std::size_t row, float* operand, int threads) {
    const std::size_t stride = geometry.y.stride, padded = geometry.y.padded(), plane = plane_rows(geometry) * row;
    // Only output rows that do not exist read there: those after the last, if the number of rows is no multiple of
    // four.
    for (std::size_t i = 0; i < 4; ++i) std::fill_n(operand + i * plane + padded * row, plane - padded * row, 0.0f);
    parallel_for(padded, 16, threads, [&](std::size_t begin, std::size_t end) {
        FloatFlags flags;
        float* x = operand + begin * row;
        kernels.differences(x, stride * row, (end - begin) * row, x + plane, x + 2 * plane, x + 3 * plane);
        flags.clear();
    });
}

void find_uneven(const Kernels& kernels, const Geometry& geometry, std::size_t row, std::size_t pixel,
                 const float* operand, std::uint8_t* uneven, int threads, Call& call) {
    const std::size_t width = geometry.x.count, run = geometry.x.kernel * pixel, step = geometry.x.stride * pixel;
    const std::size_t at_once = (kSpan - run) / step + 1;
    // values[i] = max(values[i], values[i + apart])
    const auto join = [&](float* values, std::size_t span, std::size_t apart) {
        const float* both[2] = {values, values + apart};
        kernels.max_of(both, 2, span - apart, values);
    };
    // values[i] = the maximum of a window that starts at i, whose length is the largest power of two up to `run`.
    // Returns that length.
    const auto over_parts_of_runs = [&](float* values, std::size_t span) {
        std::size_t length = 1;
        for (; 2 * length <= run; length *= 2) join(values, span - length + 1, length);
        return length;
    };
    // Usually the rows that all four windows share have, in part of each window, values nearly as large as the image's
    // largest.
    const std::size_t shared = 3 * geometry.y.stride;
    const float enough = largest_of_picture(kernels, geometry, row, operand) * (1 / kRange);
    calculate((geometry.y.count + 3) / 4, 4, threads, call, [&](std::size_t begin, std::size_t end) {
        alignas(64) float least[kSpan], most[kSpan], seen[kSpan];
        const float* rows[4 * kMostRows];
        for (std::size_t four = begin; four < end; ++four)
            for (std::size_t first = 0; first < width; first += at_once) {
                const std::size_t count = std::min(at_once, width - first), span = (count - 1) * step + run;
                const float* from = operand + geometry.y.start(4 * four) * row + first * step;
                std::uint8_t* marks = uneven + four * width + first;
                const auto largest = [&](std::size_t top, std::size_t bottom, float* out) {
                    for (std::size_t r = top; r < bottom; ++r) rows[r - top] = from + r * row;
                    kernels.largest_of_rows(rows, bottom - top, span, out);
                };
                if (geometry.y.kernel > shared && enough < kTooLarge / kRange) {
                    largest(shared, geometry.y.kernel, least);
                    over_parts_of_runs(least, span);
                    float smallest = least[0];
                    for (std::size_t i = 1; i < count; ++i) smallest = std::min(smallest, least[i * step]);
                    if (enough <= smallest) {
                        std::fill_n(marks, count, std::uint8_t{0});
                        continue;
                    }
                }
                largest(0, shared + geometry.y.kernel, most);
                largest(0, geometry.y.kernel, least);
                for (std::size_t y = 1; y < std::min<std::size_t>(4, geometry.y.count - 4 * four); ++y) {
                    largest(y * geometry.y.stride, y * geometry.y.stride + geometry.y.kernel, seen);
                    for (std::size_t i = 0; i < span; ++i) least[i] = std::min(least[i], seen[i]);
                }
                for (float* values : {least, most}) {
                    const std::size_t length = over_parts_of_runs(values, span);
                    if (run > length) join(values, span - length + 1, run - length);
                }
                for (std::size_t i = 0; i < count; ++i)
                    marks[i] = !(most[i * step] * (1 / kRange) <= least[i * step] && most[i * step] < kTooLarge);
            }
    });
}

}  // namespace rbnn
