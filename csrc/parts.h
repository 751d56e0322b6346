// The sums that a convolution with rows of numbers (not bits) is made of: one, or three for two output rows at a time.
//
// Let s be the stride, and r and r + s two rows of the kernel.  Of them two output rows, one below the other, see
//
//   upper:  x[r]·w[r]   + x[r+s]·w[r+s]    = D[r]·w[r]       + x[r+s]·(w[r] + w[r+s])          D[y] = x[y] − x[y+s]
//   lower:  x[r+s]·w[r] + x[r+2s]·w[r+s]   = −D[r+s]·w[r+s]  + x[r+s]·(w[r] + w[r+s])
//
// The last term is the same: three products in place of four.  A row of the kernel without such a partner has two, as always.  Of 7
// rows with stride 2 three pairs and a single one make 11 products for 14.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "window.h"

namespace rbnn {

// A sum over segments of the operand: the picture with its margin, and below it, where rows are paired, the differences D.
struct Part {
    struct Share {
        std::size_t row;
        int sign;
    };
    std::vector<Segment> segments;
    std::size_t run;                        // values of the kernel that one weight row is made of
    std::vector<std::vector<Share>> rows;   // per run: the rows of the kernel whose sum its weights are

    std::size_t taps() const { return run * rows.size(); }
    // `weight`: the kernel of one output channel.
    template <class Number>
    double weight(const Number* weight, std::size_t tap) const {
        double sum = 0.0;
        for (const Share& share : rows[tap / run])
            sum += share.sign * static_cast<double>(weight[share.row * run + tap % run]);
        return sum;
    }
};

struct Parts {
    std::vector<std::uint32_t> offsets;  // per position: its first tap.  Paired: two output rows have one row of positions
    std::vector<Part> all;               // the sum; paired: upper, lower, shared

    bool paired() const { return all.size() == 3; }
};

// Whether pairs of rows save more than they cost: long rows, and weights that stay in the cache though they become more.
bool pairing_pays(const Window& window, std::size_t channels, std::size_t outputs);

// Rows the operand has: of the picture with its margins, and of the differences.
std::size_t operand_rows(const Window& window, bool paired);

// The operand has rows of `row` and pixels of `pixel` units, of which a tap takes the first `tap`; a value is `value` units.
Parts lay_out_parts(const Window& window, std::size_t row, std::size_t pixel, std::size_t tap, std::size_t value, bool paired);

// Calls body(block, first, last) for the positions of each block, about `chunk` at a time.
template <class Body>
void over_blocks(std::size_t blocks, std::size_t positions, std::size_t chunk, int threads, const Body& body) {
    chunk = std::clamp<std::size_t>(chunk / 6 * 6, 6, std::max<std::size_t>(positions, 6));  // whole tiles
    const std::size_t chunks = (positions + chunk - 1) / chunk;
    parallel_for(blocks * chunks, 1, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i)
            body(i / chunks, i % chunks * chunk, std::min((i % chunks + 1) * chunk, positions));
    });
}

// Fills the rows of an operand below the picture.  `row`: numbers in a row.
template <class Number>
void make_differences(const Window& window, std::size_t row, Number* operand, int threads) {
    const std::size_t stride = window.y.stride, padded = window.y.padded();
    std::fill_n(operand + padded * row, stride * row, Number{0});  // an odd last row has a lower partner that nobody wants
    parallel_for(padded, 16, threads, [&](std::size_t begin, std::size_t end) {
        const Number *x = operand + begin * row, *below = x + stride * row;
        Number* to = operand + (padded + stride + begin) * row;
        for (std::size_t i = 0; i < (end - begin) * row; ++i) to[i] = static_cast<Number>(x[i] - below[i]);
    });
}

}  // namespace rbnn
