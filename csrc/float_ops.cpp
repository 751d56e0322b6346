// The small operations: each makes a closure over checked buffers and copies of its tensors.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "operation.h"
#include "threads.h"
#include "window.h"

namespace rbnn {
namespace {

class Small final : public Operation {
public:
    explicit Small(std::function<void(const Run&)> body) : body_(std::move(body)) {}
    void run(const Run& run) const override { body_(run); }

private:
    std::function<void(const Run&)> body_;
};

template <class Body>
Made small(Body body) {
    return std::make_unique<Small>(std::move(body));
}

constexpr std::size_t kGrain = 1 << 15;  // values per part; less is not worth handing out

// Rows of `values` values each, in parallel.
template <class Body>
void over_rows(const Run& run, std::size_t rows, std::size_t values, const Body& body) {
    parallel_for(rows, std::max<std::size_t>(kGrain / std::max<std::size_t>(values, 1), 1), run.threads,
                 [&](std::size_t begin, std::size_t end) {
                     for (std::size_t row = begin; row < end; ++row) body(row);
                 });
}

void expect_shape(const Reader& reader, const Buffer& out, std::size_t height, std::size_t width, std::size_t channels) {
    reader.require(out.same_shape({out.type, height, width, channels}), "an output has the wrong shape");
}

Made make_pack(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("bits", Buffer::Type::bits);
    expect_shape(reader, out, in.height, in.width, in.channels);
    const Kernels& k = reader.kernels;
    if (reader.word("level", "") == "mean")
        return small([&in, &out, &k](const Run& run) {
            const float* x = run.floats(in);
            const auto mean = static_cast<float>(k.sum(x, in.values()) / static_cast<double>(in.values()));
            alignas(64) float level[kBlock];
            std::fill(level, level + kBlock, mean);
            Word* bits = run.words(out);
            // The level is the same everywhere: where pixels are whole words, or less than one, a block of levels will do.
            if (in.channels % kBlock == 0) return k.pack(x, nullptr, nullptr, level, kBlock, in.values() / kBlock, bits);
            if (in.channels < kBlock) return k.pack(x, nullptr, nullptr, level, in.channels, in.pixels(), bits);
            for (std::size_t pixel = 0; pixel < in.pixels(); ++pixel)
                for (std::size_t c = 0; c < in.channels; c += kBlock, ++bits)
                    k.pack(x + pixel * in.channels + c, nullptr, nullptr, level, std::min(kBlock, in.channels - c), 1, bits);
        });
    reader.require(reader.word("level", "").empty(), "unknown level");
    const bool scaled = reader.has_tensor("scale") || reader.has_tensor("shift");
    return small([&in, &out, &k, scaled, scale = reader.channel_values("scale", in.channels, 1.0f),
                  shift = reader.channel_values("shift", in.channels, 0.0f),
                  level = reader.channel_values("level", in.channels, static_cast<float>(reader.number("level", 0.0)))](
                     const Run& run) {
        const std::size_t row = in.width * in.channels, words = in.width * words_for(in.channels);
        over_rows(run, in.height, row, [&](std::size_t y) {
            k.pack(run.floats(in) + y * row, scaled ? scale.data() : nullptr, scaled ? shift.data() : nullptr, level.data(),
                   in.channels, in.width, run.words(out) + y * words);
        });
    });
}

Made make_quantize(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("bytes", Buffer::Type::bytes);
    expect_shape(reader, out, in.height, in.width, in.channels);
    reader.require(reader.has_tensor("scale") && reader.has_tensor("shift"), "has no scale or shift");
    const std::size_t row = in.width * in.channels;
    // One number for each value of a row, so that rows are plain arrays.
    const auto repeated = [&](const char* role) {
        const std::vector<float> once = reader.channel_values(role, in.channels, 0.0f);
        std::vector<float> values(row);
        for (std::size_t i = 0; i < row; ++i) values[i] = once[i % in.channels];
        return values;
    };
    return small([&in, &out, &k = reader.kernels, row, scale = repeated("scale"), shift = repeated("shift")](const Run& run) {
        over_rows(run, in.height, row, [&](std::size_t y) {
            k.quantize(run.floats(in) + y * row, scale.data(), shift.data(), row, run.bytes(out) + y * row);
        });
    });
}

Made make_affine(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    expect_shape(reader, out, in.height, in.width, in.channels);
    reader.require(reader.has_tensor("scale") && reader.has_tensor("shift"), "has no scale or shift");
    return small([&in, &out, &k = reader.kernels, scale = reader.channel_values("scale", in.channels, 1.0f),
                  shift = reader.channel_values("shift", in.channels, 0.0f)](const Run& run) {
        const std::size_t row = in.width * in.channels;
        over_rows(run, in.height, row, [&](std::size_t y) {
            k.affine(run.floats(in) + y * row, scale.data(), shift.data(), in.channels, in.width,
                     run.floats(out) + y * row);
        });
    });
}

Made make_activation(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    expect_shape(reader, out, in.height, in.width, in.channels);
    reader.require(!reader.word("activation", "").empty(), "has no activation");
    const ActivationSpec spec = read_activation(reader, in.channels);
    const Kernels& k = reader.kernels;
    if (spec.activation == Activation::clamp)
        return small([&in, &out, &k, low = spec.low, high = spec.high](const Run& run) {
            const std::size_t row = in.width * in.channels;
            over_rows(run, in.height, row, [&](std::size_t y) {
                k.clamp(run.floats(in) + y * row, low, high, row, run.floats(out) + y * row);
            });
        });
    const std::vector<float> zeros(words_for(in.channels) * kBlock, 0.0f), ones(zeros.size(), 1.0f);
    return small([&in, &out, &k, spec, zeros, ones](const Run& run) {
        const Finish finish{in.channels, ones.data(), zeros.data(), nullptr, spec.activation, spec.low, spec.high,
                            spec.slope.data(), zeros.data(), nullptr, run.floats(out), nullptr};
        over_rows(run, in.pixels(), in.channels, [&](std::size_t pixel) {
            for (std::size_t c = 0; c < in.channels; c += kBlock) {
                float values[kBlock] = {};
                std::memcpy(values, run.floats(in) + pixel * in.channels + c,
                            std::min(kBlock, in.channels - c) * sizeof(float));
                k.finish(finish, values, c / kBlock, pixel, pixel + 1);
            }
        });
    });
}

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
    const Window window = read_window(reader, in, true);
    expect_shape(reader, out, window.y.count, window.x.count, in.channels);
    for (const Axis* axis : {&window.y, &window.x})
        for (std::size_t i = 0; i < axis->count; ++i) {
            const auto [first, last] = axis->inside(i);
            reader.require(first < last, "a window sees nothing of the picture");
        }
    const bool count_padding = reader.number("count_padding", 1.0) != 0.0;
    std::vector<Span> columns;
    for (std::size_t x = 0; x < window.x.count; ++x) columns.push_back(span(window.x, x));
    return small([&in, &out, &k = reader.kernels, window, columns, maximum, count_padding](const Run& run) {
        const auto counted = [&](const Axis& axis, std::size_t i) {
            // What lies beyond the right padding (a ceiled window) never counts.
            return std::min(axis.start(i) + axis.kernel, axis.padded()) - axis.start(i);
        };
        over_rows(run, out.height, out.width * out.channels, [&](std::size_t y) {
            float* to = run.floats(out) + y * out.width * out.channels;
            const Span ys = span(window.y, y);
            for (std::size_t x = 0; x < out.width; ++x, to += out.channels) {
                const Span xs = columns[x];
                (maximum ? max_pixel : sum_pixel)(k, in, run.floats(in), ys, xs, to);
                if (!maximum)
                    divide(to, out.channels,
                           count_padding ? counted(window.y, y) * counted(window.x, x)
                                         : (ys.last - ys.first) * (xs.last - xs.first));
            }
        });
    });
}

Made make_pool_bits(const Reader& reader) {
    const Buffer &in = reader.input("x", Buffer::Type::bits), &out = reader.output("bits", Buffer::Type::bits);
    const Window window = read_window(reader, in, true);
    expect_shape(reader, out, window.y.count, window.x.count, in.channels);
    std::vector<Word> invert(words_for(in.channels), 0);
    if (reader.has_tensor("invert")) {
        const std::size_t bytes = (in.channels + 7) / 8;
        const auto* data = static_cast<const std::uint8_t*>(reader.tensor("invert", Tensor::Type::uint8, {bytes}).data);
        for (std::size_t i = 0; i < bytes; ++i) invert[i / 8] |= static_cast<Word>(data[i]) << (i % 8 * 8);
        if (in.channels % kWordBits != 0)
            reader.require(invert.back() >> (in.channels % kWordBits) == 0, "invert has bits beyond its channels");
    }
    return small([&in, &out, window, invert](const Run& run) {
        const std::size_t words = words_for(in.channels);
        Word* to = run.words(out);
        for (std::size_t y = 0; y < out.height; ++y)
            for (std::size_t x = 0; x < out.width; ++x, to += words) {
                const Span ys = span(window.y, y), xs = span(window.x, x);
                // min(s) = −max(−s)
                std::fill(to, to + words, 0);
                for (std::size_t row = ys.first; row < ys.last; row += ys.step)
                    for (std::size_t column = xs.first; column < xs.last; column += xs.step)
                        for (std::size_t i = 0; i < words; ++i)
                            to[i] |= run.words(in)[(row * in.width + column) * words + i] ^ invert[i];
                for (std::size_t i = 0; i < words; ++i) to[i] ^= invert[i];
            }
    });
}

Made make_adaptive_pool(const Reader& reader, bool maximum, std::vector<std::size_t> size) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    expect_shape(reader, out, size[0], size[1], in.channels);
    return small([&in, &out, &k = reader.kernels, maximum](const Run& run) {
        const auto cell = [](std::size_t i, std::size_t side, std::size_t count) {
            return Span{i * side / count, ((i + 1) * side + count - 1) / count, 1};
        };
        over_rows(run, out.height, in.width * out.channels, [&](std::size_t y) {
            float* to = run.floats(out) + y * out.width * out.channels;
            const Span ys = cell(y, in.height, out.height);
            for (std::size_t x = 0; x < out.width; ++x, to += out.channels) {
                const Span xs = cell(x, in.width, out.width);
                (maximum ? max_pixel : sum_pixel)(k, in, run.floats(in), ys, xs, to);
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
    return small([&in, &out, &k = reader.kernels](const Run& run) {
        for (std::size_t pixel = 0; pixel < in.pixels(); ++pixel)
            run.floats(out)[pixel] = static_cast<float>(k.sum(run.floats(in) + pixel * in.channels, in.channels) /
                                                        static_cast<double>(in.channels));
    });
}

// a and b, sides of 1 repeated.
Made make_pair(const Reader& reader, bool sum) {
    const Buffer &a = reader.input("a"), &b = reader.input("b"), &out = reader.output("float");
    const auto fits = [](std::size_t x, std::size_t y) { return x == y || x == 1 || y == 1; };
    reader.require(fits(a.height, b.height) && fits(a.width, b.width) && fits(a.channels, b.channels),
                   "shapes do not fit together");
    expect_shape(reader, out, std::max(a.height, b.height), std::max(a.width, b.width), std::max(a.channels, b.channels));
    return small([&a, &b, &out, &k = reader.kernels, sum](const Run& run) {
        const auto apply = sum ? k.add : k.multiply;
        over_rows(run, out.height, out.width * out.channels, [&](std::size_t y) {
            const auto row = [&](const Buffer& in) {
                return run.floats(in) + (in.height == 1 ? 0 : y) * in.width * in.channels;
            };
            float* to = run.floats(out) + y * out.width * out.channels;
            const float *left = row(a), *right = row(b);
            if (a.width == b.width && a.channels == b.channels) return apply(left, right, out.width * out.channels, to);
            for (std::size_t x = 0; x < out.width; ++x, to += out.channels) {
                const float* p = left + (a.width == 1 ? 0 : x) * a.channels;
                const float* q = right + (b.width == 1 ? 0 : x) * b.channels;
                if (a.channels == b.channels)
                    apply(p, q, out.channels, to);
                else
                    for (std::size_t c = 0; c < out.channels; ++c)
                        apply(p + (a.channels == 1 ? 0 : c), q + (b.channels == 1 ? 0 : c), 1, to + c);
            }
        });
    });
}

Made make_concat(const Reader& reader) {
    const Buffer& out = reader.output("float");
    std::vector<const Buffer*> parts;
    std::size_t channels = 0;
    for (std::size_t i = 0; i < reader.spec.inputs.size(); ++i) {
        parts.push_back(&reader.input(("x" + std::to_string(i)).c_str()));
        reader.require(parts.back()->height == out.height && parts.back()->width == out.width, "sizes differ");
        channels += parts.back()->channels;
    }
    reader.require(!parts.empty() && channels == out.channels, "an output has the wrong shape");
    return small([parts, &out](const Run& run) {
        float* to = run.floats(out);
        for (std::size_t pixel = 0; pixel < out.pixels(); ++pixel)
            for (const Buffer* part : parts) {
                std::memcpy(to, run.floats(*part) + pixel * part->channels, part->channels * sizeof(float));
                to += part->channels;
            }
    });
}

Made make_reshape(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    reader.require(in.values() == out.values(), "a reshape keeps the number of values");
    const std::string order = reader.word("order", "");
    reader.require(order == "hwc" || order == "chw", "order is hwc or chw");
    // With one pixel, or one channel, on both sides the two orders are the same.
    const auto plain = [](const Buffer& b) { return b.pixels() == 1 || b.channels == 1; };
    if (order == "hwc" || (plain(in) && plain(out)))
        return small([&in, &out](const Run& run) { std::memcpy(run.floats(out), run.floats(in), in.bytes()); });
    return small([&in, &out](const Run& run) {
        // Value i of torch's order, there and here.
        const float* from = run.floats(in);
        float* to = run.floats(out);
        std::size_t pixel = 0, channel = 0;
        for (std::size_t c = 0; c < in.channels; ++c)
            for (std::size_t p = 0; p < in.pixels(); ++p) {
                to[pixel * out.channels + channel] = from[p * in.channels + c];
                if (++pixel == out.pixels()) pixel = 0, ++channel;
            }
    });
}

Made make_slice(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const auto start = reader.whole("start", 3, 0, kLargestChannels, {}), stop = reader.whole("stop", 3, 0, kLargestChannels, {}),
               step = reader.whole("step", 3, 1, kLargestChannels, {});
    const std::array<std::size_t, 3> sides{in.height, in.width, in.channels};
    std::array<std::size_t, 3> counts;
    for (std::size_t i = 0; i < 3; ++i) {
        reader.require(start[i] < stop[i] && stop[i] <= sides[i], "a slice is empty or leaves the picture");
        counts[i] = (stop[i] - start[i] + step[i] - 1) / step[i];
    }
    expect_shape(reader, out, counts[0], counts[1], counts[2]);
    return small([&in, &out, start, step](const Run& run) {
        float* to = run.floats(out);
        for (std::size_t y = 0; y < out.height; ++y)
            for (std::size_t x = 0; x < out.width; ++x, to += out.channels) {
                const float* from = run.floats(in) + ((start[0] + y * step[0]) * in.width + start[1] + x * step[1]) * in.channels;
                for (std::size_t c = 0; c < out.channels; ++c) to[c] = from[start[2] + c * step[2]];
            }
    });
}

Made make_pad(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const auto before = reader.whole("before", 3, 0, kLargestChannels, {}), after = reader.whole("after", 3, 0, kLargestChannels, {});
    expect_shape(reader, out, before[0] + in.height + after[0], before[1] + in.width + after[1],
                 before[2] + in.channels + after[2]);
    return small([&in, &out, before, value = static_cast<float>(reader.number("value", 0.0))](const Run& run) {
        std::fill(run.floats(out), run.floats(out) + out.values(), value);
        for (std::size_t y = 0; y < in.height; ++y)
            for (std::size_t x = 0; x < in.width; ++x)
                std::memcpy(run.floats(out) + ((y + before[0]) * out.width + x + before[1]) * out.channels + before[2],
                            run.floats(in) + (y * in.width + x) * in.channels, in.channels * sizeof(float));
    });
}

Made make_constant(const Reader& reader) {
    const Buffer& out = reader.output("float");
    const auto* data = static_cast<const float*>(
        reader.tensor("value", Tensor::Type::float32, {out.height, out.width, out.channels}).data);
    return small([&out, values = std::vector<float>(data, data + out.values())](const Run& run) {
        std::memcpy(run.floats(out), values.data(), out.bytes());
    });
}

}  // namespace

Made make_other(const Reader& reader) {
    const std::string& kind = reader.spec.kind;
    if (kind == "pack") return make_pack(reader);
    if (kind == "quantize") return make_quantize(reader);
    if (kind == "affine") return make_affine(reader);
    if (kind == "activation") return make_activation(reader);
    if (kind == "max_pool") return make_pool(reader, true);
    if (kind == "avg_pool") return make_pool(reader, false);
    if (kind == "max_pool_bits") return make_pool_bits(reader);
    if (kind == "adaptive_max_pool" || kind == "adaptive_avg_pool")
        return make_adaptive_pool(reader, kind == "adaptive_max_pool", reader.whole("size", 2, 1, kLargestSide, {}));
    if (kind == "mean") return make_mean(reader);
    if (kind == "add") return make_pair(reader, true);
    if (kind == "multiply") return make_pair(reader, false);
    if (kind == "concat") return make_concat(reader);
    if (kind == "reshape") return make_reshape(reader);
    if (kind == "slice") return make_slice(reader);
    if (kind == "pad") return make_pad(reader);
    if (kind == "constant") return make_constant(reader);
    return nullptr;
}

}  // namespace rbnn
