#include "ops/geometry.h"

namespace rbnn {
namespace {

std::vector<std::pair<std::size_t, std::size_t>> distinct(const Axis& axis, std::vector<std::size_t>& of_position) {
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t i = 0; i < axis.count; ++i) {
        // Neither end ever grows from one position to the next, so equal ranges are adjacent.
        if (found.empty() || found.back() != axis.inside(i)) found.push_back(axis.inside(i));
        of_position.push_back(found.size() - 1);
    }
    return found;
}

}  // namespace

Taps lay_out(const Geometry& geometry, std::size_t row, std::size_t pixel, std::size_t tap) {
    Taps taps;
    for (std::size_t y = 0; y < geometry.y.count; ++y)
        for (std::size_t x = 0; x < geometry.x.count; ++x)
            taps.offsets.push_back(static_cast<std::uint32_t>(geometry.y.start(y) * row + geometry.x.start(x) * pixel));
    // Adjacent taps are one segment, unless a tap uses only part of a pixel.
    const std::size_t together = tap == pixel ? geometry.taps_side_by_side() : 1;
    for (std::size_t ky = 0; ky < geometry.y.kernel; ++ky)
        for (std::size_t kx = 0; kx < geometry.x.kernel; kx += together)
            taps.segments.push_back(
                {static_cast<std::uint32_t>(ky * geometry.y.dilation * row + kx * geometry.x.dilation * pixel),
                 static_cast<std::uint32_t>(together * tap)});
    return taps;
}

Borders find_borders(const Geometry& geometry) {
    std::vector<std::size_t> of_row, of_column;
    const auto rows = distinct(geometry.y, of_row), columns = distinct(geometry.x, of_column);
    Borders borders;
    for (const auto& row : rows)
        for (const auto& column : columns) borders.kinds.push_back({row, column});
    for (const std::size_t row : of_row)
        for (const std::size_t column : of_column)
            borders.of_pixel.push_back(static_cast<std::uint32_t>(row * columns.size() + column));
    return borders;
}

}  // namespace rbnn
