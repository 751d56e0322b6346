// The sums that a convolution of numbers (not bits) is made of: one, or several for four output rows at a time, nine of floats, and
// of whole numbers seven (ops/toom_cook.h).
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

#include "base/call.h"
#include "ops/geometry.h"

namespace rbnn {

// A sum over segments of the operand.
struct RowSum {
    struct Share {
        std::size_t row;
        int factor;
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
            sum += share.factor * static_cast<double>(weight[share.row * run + tap % run]);
        return sum;
    }
};

struct RowSums {
    std::vector<std::uint32_t> offsets;  // per position: its first tap.  By fours: four output rows have one row of positions
    std::vector<RowSum> all;               // the sum; by fours: those that four rows are made of

    bool by_fours() const { return all.size() > 1; }
    std::size_t taps() const {
        std::size_t total = 0;
        for (const RowSum& sum : all) total += sum.taps();
        return total;
    }
};

// Whether it saves more than it costs: long rows, and weights that stay in the cache though they become more.
bool fours_pay(const Geometry& geometry, std::size_t channels, std::size_t outputs);

// The operand has rows of `row` and pixels of `pixel` units, of which a tap takes the first `tap`; a value is `value` units.
RowSums lay_out_sum(const Geometry& geometry, std::size_t row, std::size_t pixel, std::size_t tap, std::size_t value);

// Upper, lower and shared of upper, of lower and of shared.  The operand is the picture with its margin, and below it its
// differences by one stride, by two strides, and the differences of these by one: so many rows.
RowSums lay_out_differences(const Geometry& geometry, std::size_t row, std::size_t pixel);
std::size_t difference_rows(const Geometry& geometry);
// Where the four windows of a position see values of different sizes: the sums of one would be rounded as coarsely as those of the
// largest, and where it sees nothing but zeros would not be 0.  Those are to be summed up one by one.  `uneven`: 1 or 0 for each
// position.  With m the largest |x| under a window and t the taps of the longest of nine sums, the others are off by at most
// 9·16·(t + 8)·2⁻²⁴·m·Σ|w|, since no sum is made of more than nine times what the four windows see.
void find_uneven(const Kernels& kernels, const Geometry& geometry, std::size_t row, std::size_t pixel, const float* operand,
                 std::uint8_t* uneven, int threads, Call& call);
// Fills the rows of an operand below the picture.  `row`: numbers in a row.
void make_differences(const Kernels& kernels, const Geometry& geometry, std::size_t row, float* operand, int threads, Call& call);

}  // namespace rbnn
