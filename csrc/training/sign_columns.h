// Which columns of an image contribute to which columns of the convolution's output.
#pragma once
#include <cstddef>
#include <vector>

#include "training/sign_conv.h"

namespace rbnn {

inline std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// Padded columns j·stride + remainder inside the image, for j = first, first + 1 …, and the taps that reach them.
struct Columns {
    std::size_t remainder, first, count;
    std::size_t x;                     // the first of them in the image
    std::vector<std::size_t> taps;
};

// A row of the output with a margin of zeros on both sides, for taps that extend beyond its edge.
struct SignRow {
    std::size_t left, length;          // margin on the left; length with both margins
    std::vector<Columns> columns;      // by remainder
    std::size_t stride;

    // The place in this row of the output for which the first of `columns` is tap kx: padded column j·stride +
    // remainder is tap kx of output j − (kx − remainder)/stride.
    std::size_t seen_by(const Columns& of, std::size_t kx) const {
        return left + of.first - (kx - of.remainder) / stride;
    }
};

SignRow sign_row(const SignConv& conv);

}  // namespace rbnn
