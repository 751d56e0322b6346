// The sums that a convolution of floats or bytes is made of.  There is one sum, or there are several for four output
// rows at a time: nine for floats, and seven for integers (ops/toom_cook.h).
//
// For the kernel rows r and r + d, two output rows that are d input rows apart compute
//
//   upper:  x[r]·w[r]   + x[r+d]·w[r+d]    = D[r]·w[r]       + x[r+d]·(w[r] + w[r+d])          D[y] = x[y] − x[y+d]
//   lower:  x[r+d]·w[r] + x[r+2d]·w[r+d]   = −D[r+d]·w[r+d]  + x[r+d]·(w[r] + w[r+d])
//
// The last term is the same, so three products replace four.  (If there is no row r + d, there are two products, as
// before.) Two rows are thus an upper, a lower and a shared sum of one row each.  Four rows are an upper, a lower and
// a shared sum of two rows each, with d twice the stride, and each of these is three sums of one row, with d the
// stride.  For a kernel with 7 rows and stride 2, 17 products replace 28.
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
    std::size_t run;                        // the number of kernel values in one row of weights
    std::vector<std::vector<Share>> rows;   // for each run: the kernel rows whose weighted sum is its weights

    std::size_t taps() const { return run * rows.size(); }
    // `weight` is the kernel of one output channel.
    template <class Number>
    double weight(const Number* weight, std::size_t tap) const {
        double sum = 0.0;
        for (const Share& share : rows[tap / run])
            sum += share.factor * static_cast<double>(weight[share.row * run + tap % run]);
        return sum;
    }
};

struct RowSums {
    std::vector<std::uint32_t> offsets;  // the first tap of each position; by fours, a position has four output rows
    std::vector<RowSum> all;               // the sum; by fours, the sums that four rows are made of

    bool by_fours() const { return all.size() > 1; }
    std::size_t taps() const {
        std::size_t total = 0;
        for (const RowSum& sum : all) total += sum.taps();
        return total;
    }
};

// Whether four rows at a time save more than they cost.  This needs long rows, and weights that stay in the cache
// although there are more of them.
bool fours_pay(const Geometry& geometry, std::size_t channels, std::size_t outputs);

// A row of the operand has `row` units, a pixel has `pixel` units, of which a tap uses the first `tap`, and a value has
// `value` units.
RowSums lay_out_sum(const Geometry& geometry, std::size_t row, std::size_t pixel, std::size_t tap, std::size_t value);

// The nine sums: upper, lower and shared of upper, of lower and of shared.  The operand is the padded image and, below
// it, its differences by one stride, its differences by two strides, and the differences of these by one stride.
// `difference_rows` is the number of its rows.
RowSums lay_out_differences(const Geometry& geometry, std::size_t row, std::size_t pixel);
std::size_t difference_rows(const Geometry& geometry);
// Finds positions whose four windows contain values of very different sizes.  There the sum of one window would be
// rounded as coarsely as the largest of the four, and the sum of a window of zeros would not be 0.  These positions
// must be summed one by one.  `uneven` gets 1 or 0 for each position.  With m the largest |x| in a window and t the
// taps of the longest of the nine sums, the error at other positions is at most 9·16·(t + 8)·2⁻²⁴·m·Σ|w|, because no
// sum consists of more than nine times what the four windows contain.
void find_uneven(const Kernels& kernels, const Geometry& geometry, std::size_t row, std::size_t pixel,
                 const float* operand, std::uint8_t* uneven, int threads, Call& call);
// Fills the rows of an operand below the image.  `row` is the count of numbers in a row.  A difference may overflow; it
// belongs to uneven positions alone, so the overflow is not reported.
void make_differences(const Kernels& kernels, const Geometry& geometry, std::size_t row, float* operand, int threads);

}  // namespace rbnn
