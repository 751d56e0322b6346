// A kernel that passes over a picture: sizes, and which of its taps lie inside.
#pragma once
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "operation.h"
#include "threads.h"

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

// Where the taps of a convolution lie in its input, margins included.
struct Taps {
    std::vector<std::uint32_t> offsets;  // per output pixel: its first tap
    std::vector<Segment> segments;       // the taps of a pixel, from there
};

// Rows of `row` and pixels of `pixel` units, of which a tap takes the first `tap`.
Taps lay_out(const Window& window, std::size_t row, std::size_t pixel, std::size_t tap);

// Output pixels by which of their taps lie inside the picture: 9 kinds for a 3×3 kernel that is padded by 1.
struct Borders {
    struct Kind {
        std::pair<std::size_t, std::size_t> rows, columns;
        bool inside(std::size_t row, std::size_t column) const {
            return row >= rows.first && row < rows.second && column >= columns.first && column < columns.second;
        }
    };
    std::vector<Kind> kinds;
    std::vector<std::uint32_t> of_pixel;
};
Borders find_borders(const Window& window);

// Copies a picture and adds a margin of zeros: copy_row(y, to) brings row y.
template <class CopyRow>
void copy_padded(const Window& window, std::size_t pixel_bytes, std::uint8_t* out, int threads, const CopyRow& copy_row) {
    const std::size_t row = window.x.padded() * pixel_bytes, margin = window.x.padding * pixel_bytes;
    parallel_for(window.y.padded(), 16, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t y = begin; y < end; ++y) {
            std::uint8_t* to = out + y * row;
            if (y < window.y.padding || y >= window.y.padding + window.y.side) {
                std::memset(to, 0, row);
                continue;
            }
            std::memset(to, 0, margin);
            copy_row(y - window.y.padding, to + margin);
            std::memset(to + row - margin, 0, margin);
        }
    });
}

// The window of an operation over `in`, checked.  A pool's stride is its kernel unless given, its padding at most half.
Window read_window(const Reader& reader, const Buffer& in, bool pool);

}  // namespace rbnn
