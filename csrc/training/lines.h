// Floats that start at a cache line.
#pragma once
#include <cstddef>
#include <vector>

namespace rbnn {

struct alignas(64) Line {
    float values[16];
};

inline std::vector<Line> lines_for(std::size_t floats) { return std::vector<Line>((floats + 15) / 16, Line{}); }

}  // namespace rbnn
