// Pooling: the maximum or the mean of the values in a window.
#include <algorithm>

#include "ops/operations.h"
#include "ops/small_operation.h"

namespace rbnn {
namespace {

// The window of one output pixel, along one axis of the image.
struct Span {
    std::size_t first, last, step;
};

Span span(const Axis& axis, std::size_t i) {
    const auto [first, last] = axis.inside(i);
    const std::size_t begin = axis.start(i) + first * axis.dilation - axis.padding;
    return {begin, begin + (last - first) * axis.dilation, axis.dilation};
}

constexpr std::size_t kTapsAtOnce = 16;
// With more values than this in a window, a call may be stopped between pixels and not only between rows.
constexpr std::size_t kLargeWindow = 1 << 12;

void max_pixel(const Kernels& k, const Buffer& in, const float* x, Span ys, Span xs, float* out) {
    const float* taps[kTapsAtOnce];
    std::size_t count = 0;
    for (std::size_t y = ys.first; y < ys.last; y += ys.step)
        for (std::size_t column = xs.first; column < xs.last; column += xs.step) {
            if (count == kTapsAtOnce) {  // the maximum so far is one of the next taps
                k.max_of(taps, count, in.channels, out);
                taps[0] = out, count = 1;
            }
            taps[count++] = x + (y * in.width + column) * in.channels;
        }
    k.max_of(taps, count, in.channels, out);
}

// The sum is in double, so that the mean of 2²⁷ values is as exact as that of four: the nearest float, or one of the
// two nearest in a tie.
void mean_pixel(const Kernels& k, const Buffer& in, const float* x, Span ys, Span xs, std::size_t count, float* out) {
    for (std::size_t c = 0; c < in.channels; c += kBlockChannels) {
        const std::size_t n = std::min(kBlockChannels, in.channels - c);
        double sums[kBlockChannels] = {};
        for (std::size_t y = ys.first; y < ys.last; y += ys.step)
            for (std::size_t column = xs.first; column < xs.last; column += xs.step)
                k.add_into(sums, x + (y * in.width + column) * in.channels + c, n);
        for (std::size_t i = 0; i < n; ++i) out[c + i] = static_cast<float>(sums[i] / static_cast<double>(count));
    }
}

Made make_pool(const Kernels& k, const Buffer& in, const Buffer& out, const Geometry& geometry, bool maximum,
               bool count_padding) {
    std::vector<Span> columns;
    for (std::size_t x = 0; x < geometry.x.count; ++x) columns.push_back(span(geometry.x, x));
    return small([&in, &out, &k, geometry, columns, maximum, count_padding](const Workspace& work) {
        const auto counted = [&](const Axis& axis, std::size_t i) {
            // Taps beyond the right padding, which occur when sizes are rounded up, never count.
            return std::min(axis.start(i) + axis.kernel, axis.padded()) - axis.start(i);
        };
        over_rows(work, out.height, out.width * out.channels, [&](std::size_t y) {
            float* to = work.floats(out) + y * out.width * out.channels;
            const Span ys = span(geometry.y, y);
            const bool large = geometry.y.kernel * geometry.x.kernel * in.channels > kLargeWindow;
            for (std::size_t x = 0; x < out.width; ++x, to += out.channels) {
                const Span xs = columns[x];
                if (large && work.call.stop()) return;
                if (maximum)
                    max_pixel(k, in, work.floats(in), ys, xs, to);
                else
                    mean_pixel(k, in, work.floats(in), ys, xs,
                               count_padding ? counted(geometry.y, y) * counted(geometry.x, x)
                                             : (ys.last - ys.first) * (xs.last - xs.first), to);
            }
        });
    });
}

}  // namespace

Made make_max_pool(const Kernels& k, const Buffer& in, const Buffer& out, const Geometry& geometry) {
    return make_pool(k, in, out, geometry, true, false);
}
Made make_avg_pool(const Kernels& k, const Buffer& in, const Buffer& out, const Geometry& geometry,
                   bool count_padding) {
    return make_pool(k, in, out, geometry, false, count_padding);
}

Made make_max_pool_bits(const Buffer& in, const Buffer& out, const Geometry& geometry,
                        const std::vector<Word>& invert) {
    return small([&in, &out, geometry, invert](const Workspace& work) {
        const std::size_t words = words_for(in.channels);
        const bool large = geometry.y.kernel * geometry.x.kernel * words > kLargeWindow;
        Word* to = work.words(out);
        for (std::size_t y = 0; y < out.height && !work.call.stop(); ++y)
            for (std::size_t x = 0; x < out.width; ++x, to += words) {
                if (large && work.call.stop()) return;
                const Span ys = span(geometry.y, y), xs = span(geometry.x, x);
                // min(s) = −max(−s)
                std::fill(to, to + words, 0);
                for (std::size_t row = ys.first; row < ys.last; row += ys.step)
                    for (std::size_t column = xs.first; column < xs.last; column += xs.step)
                        for (std::size_t i = 0; i < words; ++i)
                            to[i] |= work.words(in)[(row * in.width + column) * words + i] ^ invert[i];
                for (std::size_t i = 0; i < words; ++i) to[i] ^= invert[i];
            }
    });
}

Made make_adaptive_pool(const Kernels& k, const Buffer& in, const Buffer& out, bool maximum) {
    return small([&in, &out, &k, maximum](const Workspace& work) {
        const auto cell = [](std::size_t i, std::size_t side, std::size_t count) {
            return Span{i * side / count, ((i + 1) * side + count - 1) / count, 1};
        };
        over_rows(work, out.height, in.width * out.channels, [&](std::size_t y) {
            float* to = work.floats(out) + y * out.width * out.channels;
            const Span ys = cell(y, in.height, out.height);
            for (std::size_t x = 0; x < out.width; ++x, to += out.channels) {
                const Span xs = cell(x, in.width, out.width);
                if (work.call.stop()) return;
                if (maximum)
                    max_pixel(k, in, work.floats(in), ys, xs, to);
                else
                    mean_pixel(k, in, work.floats(in), ys, xs, (ys.last - ys.first) * (xs.last - xs.first), to);
            }
        });
    });
}

Made make_channel_mean(const Kernels& k, const Buffer& in, const Buffer& out) {
    return small([&in, &out, &k](const Workspace& work) {
        for (std::size_t pixel = 0; pixel < in.pixels(); ++pixel)
            work.floats(out)[pixel] = static_cast<float>(k.sum(work.floats(in) + pixel * in.channels, in.channels) /
                                                        static_cast<double>(in.channels));
    });
}

}  // namespace rbnn
