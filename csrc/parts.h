// The sums that a convolution of numbers (not bits) is made of: one, or nine for four output rows at a time.
//
// Two output rows, d input rows apart, see of the kernel's rows r and r + d
//
//   upper:  x[r]·w[r]   + x[r+d]·w[r+d]    = D[r]·w[r]       + x[r+d]·(w[r] + w[r+d])          D[y] = x[y] − x[y+d]
//   lower:  x[r+d]·w[r] + x[r+2d]·w[r+d]   = −D[r+d]·w[r+d]  + x[r+d]·(w[r] + w[r+d])
//
// The last term is the same: three products in place of four (two as ever where there is no row r + d).  So two rows are an upper, a
// lower and a shared sum, each of one row.  Four rows are an upper, a lower and a shared sum of two rows each, with d twice the
// stride, and these are three sums of one row, with d the stride: of a kernel with 7 rows and stride 2, 17 products for 28.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "window.h"

namespace rbnn {

// A sum over segments of the operand.  The operand is the picture with its margin; below it, where rows are taken by fours, its
// differences by one stride, by two strides, and the differences of these by one.
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
    std::vector<std::uint32_t> offsets;  // per position: its first tap.  By fours: four output rows have one row of positions
    std::vector<Part> all;               // the sum; by fours: upper, lower and shared of upper, of lower and of shared

    bool by_fours() const { return all.size() == 9; }
    std::size_t taps() const {
        std::size_t sum = 0;
        for (const Part& part : all) sum += part.taps();
        return sum;
    }
};

// Whether it saves more than it costs: long rows, and weights that stay in the cache though they become more.
bool fours_pay(const Window& window, std::size_t channels, std::size_t outputs);

// Rows of the picture in the operand, margins included, and of each kind of differences.
std::size_t plane_rows(const Window& window, bool by_fours);
// Rows of the operand.
std::size_t operand_rows(const Window& window, bool by_fours);

// The operand has rows of `row` and pixels of `pixel` units, of which a tap takes the first `tap`; a value is `value` units.
Parts lay_out_parts(const Window& window, std::size_t row, std::size_t pixel, std::size_t tap, std::size_t value, bool by_fours);

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
    const std::size_t rows = plane_rows(window, true), stride = window.y.stride, padded = window.y.padded();
    std::fill_n(operand + padded * row, (rows - padded) * row, Number{0});
    const auto subtract = [&](std::size_t from, std::size_t to, std::size_t distance) {
        Number *x = operand + from * rows * row, *result = operand + to * rows * row;
        parallel_for(rows - distance, 16, threads, [&](std::size_t begin, std::size_t end) {
            const Number *above = x + begin * row, *below = above + distance * row;
            for (std::size_t i = 0; i < (end - begin) * row; ++i)
                result[begin * row + i] = static_cast<Number>(above[i] - below[i]);
        });
        // Only output rows that do not exist, below the last of a number that is no multiple of four, look there.
        std::fill_n(result + (rows - distance) * row, distance * row, Number{0});
    };
    subtract(0, 1, stride);
    subtract(0, 2, 2 * stride);
    subtract(2, 3, stride);
}

}  // namespace rbnn
