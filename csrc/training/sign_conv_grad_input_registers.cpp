// grad_input with kernels that look up sums in registers: the lanes are input channels, and there are no planes.
//
// Four output channels are a group, and its 16 sums ±g0 ±g1 ±g2 ±g3 for one pixel are a table.  Tables are made for
// one row of gradients at a time and kept while rows of pixels need them: (rows held, pixels with their margins,
// groups, 16 sums).
#include <memory>

#include "training/sign_columns.h"
#include "training/sign_conv.h"
#include "training/lines.h"

namespace rbnn {
namespace {

constexpr std::size_t kFloats = 16;            // input channels of a vector

// The four signs of each group's filters: (taps, groups, in_channels rounded up).
std::vector<std::int32_t> make_index(const SignConv& conv, const SignFilters& filters, std::size_t groups,
                                     std::size_t channels) {
    std::vector<std::int32_t> index(conv.taps() * groups * channels, 0);
    for (std::size_t o = 0; o < conv.out_channels; ++o)
        for (std::size_t tap = 0; tap < conv.taps(); ++tap) {
            const std::uint8_t* positive = filters.positive.data() + (o * conv.taps() + tap) * conv.in_channels;
            std::int32_t* to = index.data() + (tap * groups + o / kGroup) * channels;
            for (std::size_t c = 0; c < conv.in_channels; ++c) to[c] |= positive[c] << o % kGroup;
        }
    return index;
}

}  // namespace

std::function<ImageGradient()> image_gradients_in_registers(const SignConv& conv, const SignFilters& filters) {
    const std::size_t groups = conv.out_channels / kGroup, channels = divide_up(conv.in_channels, kFloats) * kFloats;
    const auto row = std::make_shared<const SignRow>(sign_row(conv));
    const auto index = std::make_shared<const std::vector<std::int32_t>>(make_index(conv, filters, groups, channels));
    const std::size_t pixel = groups * kSums, tables_row = row->length * pixel,
                      grad_row = conv.out_width() * conv.out_channels;
    const std::size_t held = divide_up(conv.kernel_y, conv.stride_y);
    return [=, &conv, &filters]() -> ImageGradient {
        // Margins stay zero.
        const auto lines = std::make_shared<std::vector<Line>>(held * row->length * groups, Line{});
        const auto taps = std::make_shared<std::vector<LookUpRow::Tap>>();
        return [=, &conv, &filters](const float* grad, float* grad_a) {
            float* tables = lines->data()->values;
            std::size_t made = 0;
            for (std::size_t y = 0; y < conv.height; ++y) {
                for (; made < conv.out_height() && made * conv.stride_y <= y + conv.padding_y; ++made)
                    conv.kernels.training.table_pixels(grad + made * grad_row, filters.scale.data(), conv.out_width(),
                                                       conv.out_channels,
                                                       tables + made % held * tables_row + row->left * pixel);
                for (const Columns& columns : row->columns) {
                    taps->clear();
                    for (std::size_t ky = (y + conv.padding_y) % conv.stride_y;
                         ky < conv.kernel_y && ky <= y + conv.padding_y; ky += conv.stride_y) {
                        const std::size_t from = (y + conv.padding_y - ky) / conv.stride_y;
                        if (from >= conv.out_height()) continue;
                        for (const std::size_t kx : columns.taps)
                            taps->push_back({tables + from % held * tables_row + row->seen_by(columns, kx) * pixel,
                                             index->data() + (ky * conv.kernel_x + kx) * groups * channels});
                    }
                    conv.kernels.training.look_up_row(
                        {taps->data(), taps->size(), groups, columns.count, conv.in_channels,
                         grad_a + (y * conv.width + columns.x) * conv.in_channels, conv.stride_x * conv.in_channels});
                }
            }
        };
    };
}

}  // namespace rbnn
