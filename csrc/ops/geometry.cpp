#include "ops/geometry.h"

namespace rbnn {
namespace {

Axis read_axis(const Reader& reader, std::size_t side, std::size_t kernel, std::size_t stride, std::size_t padding,
               std::size_t dilation, bool pool, bool ceil) {
    const std::size_t reach = dilation * (kernel - 1) + 1;
    reader.require(!pool || 2 * padding <= kernel, "padding of a pool is at most half its kernel");
    reader.require(side + 2 * padding >= reach, "the kernel does not fit into the picture");
    const std::size_t rest = side + 2 * padding - reach;
    std::size_t count = rest / stride + 1;
    // As in torch: the last window of a ceiled pool starts inside the picture or its left padding.
    if (ceil && rest % stride != 0 && count * stride < side + padding) ++count;
    return {side, kernel, stride, padding, dilation, count};
}

std::vector<std::pair<std::size_t, std::size_t>> distinct(const Axis& axis, std::vector<std::size_t>& of_position) {
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t i = 0; i < axis.count; ++i) {
        // Neither end ever grows from one position to the next: equal ones are neighbours.
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
    // Taps side by side are one segment.
    const bool adjoining = geometry.x.dilation == 1 && tap == pixel;
    for (std::size_t ky = 0; ky < geometry.y.kernel; ++ky)
        for (std::size_t kx = 0; kx < (adjoining ? 1 : geometry.x.kernel); ++kx)
            taps.segments.push_back(
                {static_cast<std::uint32_t>(ky * geometry.y.dilation * row + kx * geometry.x.dilation * pixel),
                 static_cast<std::uint32_t>(adjoining ? geometry.x.kernel * pixel : tap)});
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

Geometry read_geometry(const Reader& reader, const Buffer& in, bool pool) {
    const auto kernel = reader.whole("kernel", 2, 1, kLargestStep, {});
    const auto stride = reader.whole("stride", 2, 1, kLargestStep, pool ? kernel : std::vector<std::size_t>{1, 1});
    const auto padding = reader.whole("padding", 2, 0, kLargestPadding, {0, 0});
    const auto dilation = reader.whole("dilation", 2, 1, kLargestStep, {1, 1});
    const bool ceil = pool && reader.number("ceil", 0.0) != 0.0;
    const Geometry geometry{
        read_axis(reader, in.height, kernel[0], stride[0], padding[0], dilation[0], pool, ceil),
        read_axis(reader, in.width, kernel[1], stride[1], padding[1], dilation[1], pool, ceil),
    };
    reader.require(geometry.y.padded() * geometry.x.padded() * in.channels <= kLargestBuffer, "padded input is too large");
    return geometry;
}

}  // namespace rbnn
