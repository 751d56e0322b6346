// Resizing: each output pixel is made from the nearest input pixels.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/operations.h"
#include "ops/small_operation.h"

namespace rbnn {
namespace {

constexpr std::size_t kMostTaps = 4;

// The input rows or columns that one row or column of the output is made of, and their weights.
struct Mix {
    std::size_t count, index[kMostTaps];
    double weight[kMostTaps];
};

// The kernel of bicubic interpolation, near a pixel and beyond its neighbour.
double inner(double t) { return ((-0.75 + 2.0) * t - (-0.75 + 3.0)) * t * t + 1.0; }
double outer(double t) { return ((-0.75 * t - 5.0 * -0.75) * t + 8.0 * -0.75) * t - 4.0 * -0.75; }

std::vector<Mix> mixes(std::size_t side, std::size_t count, Resize mode, bool align, const double* scale) {
    // In float32, as in torch, so that the nearest pixel is the same.
    const float step = scale ? static_cast<float>(1.0 / *scale) : static_cast<float>(side) / static_cast<float>(count);
    const std::size_t last = side - 1;
    std::vector<Mix> found;
    for (std::size_t i = 0; i < count; ++i) {
        if (mode == Resize::nearest || mode == Resize::nearest_exact) {
            const float place = (static_cast<float>(i) + (mode == Resize::nearest_exact ? 0.5f : 0.0f)) * step;
            found.push_back({1, {std::min(static_cast<std::size_t>(std::floor(place)), last)}, {1.0}});
            continue;
        }
        double at = (static_cast<double>(i) + 0.5) * static_cast<double>(step) - 0.5;
        if (align)
            at = static_cast<double>(i) *
                 (count > 1 ? static_cast<double>(last) / static_cast<double>(count - 1) : 0.0);
        if (mode == Resize::bilinear) {
            at = std::max(at, 0.0);
            const std::size_t first = std::min(static_cast<std::size_t>(std::floor(at)), last);
            const double rest = std::min(at - static_cast<double>(first), 1.0);
            found.push_back({2, {first, std::min(first + 1, last)}, {1.0 - rest, rest}});
            continue;
        }
        const double first = std::floor(at), rest = at - first;
        Mix mix{4, {}, {outer(rest + 1.0), inner(rest), inner(1.0 - rest), outer(2.0 - rest)}};
        for (std::size_t tap = 0; tap < 4; ++tap)
            mix.index[tap] = static_cast<std::size_t>(
                std::clamp(first + static_cast<double>(tap) - 1.0, 0.0, static_cast<double>(last)));
        found.push_back(mix);
    }
    return found;
}

}  // namespace

Made make_resize(const Buffer& in, const Buffer& out, Resize mode, bool align, const std::vector<double>& scale,
                 Kept& kept) {
    kept.borders(out.height + out.width, sizeof(Mix) / sizeof(double));
    const auto rows = mixes(in.height, out.height, mode, align, scale.empty() ? nullptr : &scale[0]);
    const auto columns = mixes(in.width, out.width, mode, align, scale.empty() ? nullptr : &scale[1]);
    return small([&in, &out, rows, columns](const Workspace& work) {
        const std::size_t channels = in.channels, row = in.width * channels;
        over_rows(work, out.height, out.width * channels * rows[0].count * columns[0].count, [&](std::size_t y) {
            const Mix& high = rows[y];
            float* to = work.floats(out) + y * out.width * channels;
            for (std::size_t x = 0; x < out.width; ++x, to += channels) {
                const Mix& wide = columns[x];
                if (high.count == 1) {
                    std::memcpy(to, work.floats(in) + high.index[0] * row + wide.index[0] * channels,
                                channels * sizeof(float));
                    continue;
                }
                for (std::size_t c = 0; c < channels; ++c) {
                    double total = 0.0;
                    for (std::size_t j = 0; j < wide.count; ++j) {
                        const float* from = work.floats(in) + wide.index[j] * channels + c;
                        double column = 0.0;
                        for (std::size_t i = 0; i < high.count; ++i)
                            column += high.weight[i] * static_cast<double>(from[high.index[i] * row]);
                        total += wide.weight[j] * column;
                    }
                    to[c] = static_cast<float>(total);
                }
            }
        });
    });
}

}  // namespace rbnn
