// A kernel that passes over a picture: sizes, and which of its taps lie inside.
#pragma once
#include <cstddef>
#include <utility>

#include "operation.h"

namespace rbnn {

struct Axis {
    std::size_t side, kernel, stride, padding, dilation, count;  // count: positions of the kernel

    // Where the first tap of position i lies in the padded picture.
    std::size_t start(std::size_t i) const { return i * stride; }
    // Taps first … last of position i lie inside the picture.
    std::pair<std::size_t, std::size_t> inside(std::size_t i) const {
        const std::size_t begin = i * stride;
        std::size_t first = 0, last = kernel;
        while (first < last && begin + first * dilation < padding) ++first;
        while (last > first && begin + (last - 1) * dilation >= padding + side) --last;
        return {first, last};
    }
    std::size_t padded() const { return side + 2 * padding; }
};

struct Window {
    Axis y, x;
    std::size_t positions() const { return y.count * x.count; }
};

// The window of an operation over `in`, checked.  A pool's stride is its kernel unless given, its padding at most half.
Window read_window(const Reader& reader, const Buffer& in, bool pool);

}  // namespace rbnn
