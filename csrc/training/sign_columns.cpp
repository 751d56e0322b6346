#include "training/sign_columns.h"

#include <algorithm>

namespace rbnn {

SignRow sign_row(const SignConv& conv) {
    const std::size_t s = conv.stride_x, p = conv.padding_x;
    const std::size_t left = divide_up(conv.kernel_x - 1 > p ? conv.kernel_x - 1 - p : 0, s);
    SignRow row{left, left + std::max((conv.width - 1 + p) / s + 1, conv.out_width()), {}, s};
    for (std::size_t remainder = 0; remainder < s; ++remainder) {
        const std::size_t first = p > remainder ? divide_up(p - remainder, s) : 0;
        const std::size_t end = conv.width + p > remainder ? divide_up(conv.width + p - remainder, s) : 0;
        Columns columns{remainder, first, end > first ? end - first : 0, first * s + remainder - p, {}};
        for (std::size_t kx = remainder; kx < conv.kernel_x; kx += s) columns.taps.push_back(kx);
        row.columns.push_back(columns);
    }
    return row;
}

}  // namespace rbnn
