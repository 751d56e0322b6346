// A kernel that slides over an image: its sizes, and which of its taps are inside the image.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/threads.h"
#include "simd/kernels.h"

namespace rbnn {

struct Axis {
    std::size_t side, kernel, stride, padding, dilation, count;  // count: positions of the kernel

    // The first tap of position i in the padded image.
    std::size_t start(std::size_t i) const { return i * stride; }
    // The taps [first, last) of position i are inside the image.
    std::pair<std::size_t, std::size_t> inside(std::size_t i) const {
        const std::size_t begin = i * stride, end = padding + side;
        std::size_t first = 0, last = kernel;
        if (begin < padding) first = std::min(kernel, (padding - begin + dilation - 1) / dilation);
        if (begin + (kernel - 1) * dilation >= end) last = begin < end ? (end - 1 - begin) / dilation + 1 : 0;
        return {first, std::max(first, last)};
    }
    std::size_t padded() const { return side + 2 * padding; }
};

struct Geometry {
    Axis y, x;
    std::size_t positions() const { return y.count * x.count; }
    // The number of taps that are adjacent pixels: a row of the kernel, or one tap.
    std::size_t taps_side_by_side() const { return x.dilation == 1 ? x.kernel : 1; }
};

// The places of the taps of a convolution in its padded input.
struct Taps {
    std::vector<std::uint32_t> offsets;  // the first tap of each output pixel
    std::vector<Segment> segments;       // the taps of a pixel, relative to the first
};

// A row has `row` units and a pixel has `pixel` units, of which a tap uses the first `tap`.
Taps lay_out(const Geometry& geometry, std::size_t row, std::size_t pixel, std::size_t tap);

// Output pixels, classified by which of their taps are inside the image.  A 3×3 kernel with padding 1 has 9 kinds.
struct Borders {
    struct Kind {
        std::pair<std::size_t, std::size_t> rows, columns;  // the first tap inside, and the one after the last
        std::size_t taps() const { return (rows.second - rows.first) * (columns.second - columns.first); }
    };
    std::vector<Kind> kinds;
    std::vector<std::uint32_t> of_pixel;
};
Borders find_borders(const Geometry& geometry);

// Sums of one number per tap over the taps inside the image.  The sum for a kind of border is made from four prefix
// sums, over the taps above and to the left.
template <class Number>
class TapSums {
public:
    TapSums(std::size_t rows, std::size_t columns) : columns_(columns), sums_((rows + 1) * (columns + 1)) {}

    // Calls of_tap(t) for t = 0, 1, … in the order of the kernel.
    template <class OfTap>
    void set(const OfTap& of_tap) {
        for (std::size_t t = 0, row = 1; row * (columns_ + 1) < sums_.size(); ++row) {
            Number so_far = 0;
            for (std::size_t column = 1; column <= columns_; ++column) {
                so_far += of_tap(t++);
                sums_[row * (columns_ + 1) + column] = at(row - 1, column) + so_far;
            }
        }
    }
    Number inside(const Borders::Kind& kind) const {
        const auto [top, bottom] = kind.rows;
        const auto [left, right] = kind.columns;
        return at(bottom, right) - at(top, right) - at(bottom, left) + at(top, left);
    }
    Number all() const { return sums_.back(); }

private:
    Number at(std::size_t row, std::size_t column) const { return sums_[row * (columns_ + 1) + column]; }

    std::size_t columns_;
    std::vector<Number> sums_;  // (rows + 1, columns + 1)
};

// The correction for zero padding in a convolution of signs.  The bits of the padding are 0 but must not count.  With
// `ones` the popcounts of w,
//
//   acc = Σ_inside (C − 2·popcount(a xor w)) = inside·C + 2·Σ_outside popcount(w) − 2·(popcount over all taps)
//
// and this function returns everything but the last term.
inline std::int32_t border_base(const TapSums<std::int64_t>& ones, const Borders::Kind& kind, std::size_t channels) {
    const auto inside = static_cast<std::int64_t>(kind.taps() * channels);
    return static_cast<std::int32_t>(inside + 2 * (ones.all() - ones.inside(kind)));
}

// Copies an image and adds a margin of zeros.  copy_row(y, to) copies row y.
template <class CopyRow>
void copy_padded(const Geometry& geometry, std::size_t pixel_bytes, std::uint8_t* out, int threads,
                 const CopyRow& copy_row) {
    const std::size_t row = geometry.x.padded() * pixel_bytes, margin = geometry.x.padding * pixel_bytes;
    parallel_for(geometry.y.padded(), 16, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t y = begin; y < end; ++y) {
            std::uint8_t* to = out + y * row;
            if (y < geometry.y.padding || y >= geometry.y.padding + geometry.y.side) {
                std::memset(to, 0, row);
                continue;
            }
            std::memset(to, 0, margin);
            copy_row(y - geometry.y.padding, to + margin);
            std::memset(to + row - margin, 0, margin);
        }
    });
}

}  // namespace rbnn
