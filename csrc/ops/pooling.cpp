// The largest or the mean of some values of a picture.
#include <algorithm>

#include "ops/geometry.h"
#include "ops/small_operation.h"

namespace rbnn {
namespace {

// One output pixel of a pool: where its window begins and ends in the picture.
struct Span {
    std::size_t first, last, step;
};

Span span(const Axis& axis, std::size_t i) {
    const auto [first, last] = axis.inside(i);
    const std::size_t begin = axis.start(i) + first * axis.dilation - axis.padding;
    return {begin, begin + (last - first) * axis.dilation, axis.dilation};
}

constexpr std::size_t kTapsAtOnce = 16;

void max_pixel(const Kernels& k, const Buffer& in, const float* x, Span ys, Span xs, float* out) {
    const float* taps[kTapsAtOnce];
    std::size_t count = 0;
    for (std::size_t y = ys.first; y < ys.last; y += ys.step)
        for (std::size_t column = xs.first; column < xs.last; column += xs.step) {
            if (count == kTapsAtOnce) {  // what there is so far is one of the next
                k.max_of(taps, count, in.channels, out);
                taps[0] = out, count = 1;
            }
            taps[count++] = x + (y * in.width + column) * in.channels;
        }
    k.max_of(taps, count, in.channels, out);
}

void sum_pixel(const Kernels& k, const Buffer& in, const float* x, Span ys, Span xs, float* out) {
    std::fill(out, out + in.channels, 0.0f);
    for (std::size_t y = ys.first; y < ys.last; y += ys.step)
        for (std::size_t column = xs.first; column < xs.last; column += xs.step)
            k.add_into(out, x + (y * in.width + column) * in.channels, in.channels);
}

void divide(float* values, std::size_t n, std::size_t count) {
    for (std::size_t i = 0; i < n; ++i) values[i] /= static_cast<float>(count);
}

Made make_pool(const Reader& reader, bool maximum) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const Geometry geometry = read_geometry(reader, in, true);
    expect_shape(reader, out, geometry.y.count, geometry.x.count, in.channels);
    for (const Axis* axis : {&geometry.y, &geometry.x})
        for (std::size_t i = 0; i < axis->count; ++i) {
            const auto [first, last] = axis->inside(i);
            reader.require(first < last, "a window sees nothing of the picture");
        }
    const bool count_padding = reader.number("count_padding", 1.0) != 0.0;
    std::vector<Span> columns;
    for (std::size_t x = 0; x < geometry.x.count; ++x) columns.push_back(span(geometry.x, x));
    return small([&in, &out, &k = reader.kernels, geometry, columns, maximum, count_padding](const Workspace& work) {
        const auto counted = [&](const Axis& axis, std::size_t i) {
            // What lies beyond the right padding (a ceiled window) never counts.
            return std::min(axis.start(i) + axis.kernel, axis.padded()) - axis.start(i);
        };
        over_rows(work, out.height, out.width * out.channels, [&](std::size_t y) {
            float* to = work.floats(out) + y * out.width * out.channels;
            const Span ys = span(geometry.y, y);
            for (std::size_t x = 0; x < out.width; ++x, to += out.channels) {
                const Span xs = columns[x];
                (maximum ? max_pixel : sum_pixel)(k, in, work.floats(in), ys, xs, to);
                if (!maximum)
                    divide(to, out.channels,
                           count_padding ? counted(geometry.y, y) * counted(geometry.x, x)
                                         : (ys.last - ys.first) * (xs.last - xs.first));
            }
        });
    });
}

Made make_pool_bits(const Reader& reader) {
    const Buffer &in = reader.input("x", Buffer::Type::bits), &out = reader.output("bits", Buffer::Type::bits);
    const Geometry geometry = read_geometry(reader, in, true);
    expect_shape(reader, out, geometry.y.count, geometry.x.count, in.channels);
    std::vector<Word> invert(words_for(in.channels), 0);
    if (reader.has_tensor("invert")) {
        const std::size_t bytes = (in.channels + 7) / 8;
        const auto* data = static_cast<const std::uint8_t*>(reader.tensor("invert", Tensor::Type::uint8, {bytes}).data);
        for (std::size_t i = 0; i < bytes; ++i) invert[i / 8] |= static_cast<Word>(data[i]) << (i % 8 * 8);
        if (in.channels % kWordBits != 0)
            reader.require(invert.back() >> (in.channels % kWordBits) == 0, "invert has bits beyond its channels");
    }
    return small([&in, &out, geometry, invert](const Workspace& work) {
        const std::size_t words = words_for(in.channels);
        Word* to = work.words(out);
        for (std::size_t y = 0; y < out.height; ++y)
            for (std::size_t x = 0; x < out.width; ++x, to += words) {
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

Made make_adaptive_pool(const Reader& reader, bool maximum, std::vector<std::size_t> size) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    expect_shape(reader, out, size[0], size[1], in.channels);
    return small([&in, &out, &k = reader.kernels, maximum](const Workspace& work) {
        const auto cell = [](std::size_t i, std::size_t side, std::size_t count) {
            return Span{i * side / count, ((i + 1) * side + count - 1) / count, 1};
        };
        over_rows(work, out.height, in.width * out.channels, [&](std::size_t y) {
            float* to = work.floats(out) + y * out.width * out.channels;
            const Span ys = cell(y, in.height, out.height);
            for (std::size_t x = 0; x < out.width; ++x, to += out.channels) {
                const Span xs = cell(x, in.width, out.width);
                (maximum ? max_pixel : sum_pixel)(k, in, work.floats(in), ys, xs, to);
                if (!maximum) divide(to, out.channels, (ys.last - ys.first) * (xs.last - xs.first));
            }
        });
    });
}

Made make_mean(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const std::string over = reader.word("over", "");
    if (over == "hw") return make_adaptive_pool(reader, false, {1, 1});
    reader.require(over == "c", "mean is over hw or c");
    expect_shape(reader, out, in.height, in.width, 1);
    return small([&in, &out, &k = reader.kernels](const Workspace& work) {
        for (std::size_t pixel = 0; pixel < in.pixels(); ++pixel)
            work.floats(out)[pixel] = static_cast<float>(k.sum(work.floats(in) + pixel * in.channels, in.channels) /
                                                        static_cast<double>(in.channels));
    });
}

}  // namespace

Made make_pooling(const Reader& reader) {
    const std::string& kind = reader.spec.kind;
    if (kind == "max_pool") return make_pool(reader, true);
    if (kind == "avg_pool") return make_pool(reader, false);
    if (kind == "max_pool_bits") return make_pool_bits(reader);
    if (kind == "adaptive_max_pool" || kind == "adaptive_avg_pool")
        return make_adaptive_pool(reader, kind == "adaptive_max_pool", reader.whole("size", 2, 1, kLargestSide, {}));
    if (kind == "mean") return make_mean(reader);
    return nullptr;
}

}  // namespace rbnn
