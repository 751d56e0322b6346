// Which columns of a picture see which columns of its convolution's output.
#pragma once
#include <cstddef>
#include <vector>

#include "training/sign_conv.h"

namespace rbnn {

inline std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// Padded columns j·stride + remainder that lie in the picture: j = first, first + 1 …, and the taps that reach them.
struct Columns {
    std::size_t remainder, first, count;
    std::size_t x;                     // the first of them in the picture
    std::vector<std::size_t> taps;
};

// A row of the output with a margin of zeros on both sides, for taps that reach over its edge.
struct SignRow {
    std::size_t left, length;          // margin on the left; length with both margins
    std::vector<Columns> columns;      // by remainder
    std::size_t stride;

    // Where in this row the first of `columns` finds the output that it is tap kx of: padded column j·stride + remainder is
    // tap kx of output j − (kx − remainder)/stride.
    std::size_t seen_by(const Columns& of, std::size_t kx) const { return left + of.first - (kx - of.remainder) / stride; }
};

SignRow sign_row(const SignConv& conv);

}  // namespace rbnn
