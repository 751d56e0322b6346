#include "window.h"

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

}  // namespace

Window read_window(const Reader& reader, const Buffer& in, bool pool) {
    const auto kernel = reader.whole("kernel", 2, 1, kLargestStep, {});
    const auto stride = reader.whole("stride", 2, 1, kLargestStep, pool ? kernel : std::vector<std::size_t>{1, 1});
    const auto padding = reader.whole("padding", 2, 0, kLargestPadding, {0, 0});
    const auto dilation = reader.whole("dilation", 2, 1, kLargestStep, {1, 1});
    const bool ceil = pool && reader.number("ceil", 0.0) != 0.0;
    const Window window{
        read_axis(reader, in.height, kernel[0], stride[0], padding[0], dilation[0], pool, ceil),
        read_axis(reader, in.width, kernel[1], stride[1], padding[1], dilation[1], pool, ceil),
    };
    reader.require(window.y.padded() * window.x.padded() * in.channels <= kLargestBuffer, "padded input is too large");
    return window;
}

}  // namespace rbnn
