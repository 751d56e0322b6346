// Operations on each value by itself, and on two pictures value by value.
#include <algorithm>
#include <cstring>

#include "ops/small_operation.h"

namespace rbnn {
namespace {

Made make_pack(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("bits", Buffer::Type::bits);
    expect_shape(reader, out, in.height, in.width, in.channels);
    const Kernels& k = reader.kernels;
    if (reader.word("level", "") == "mean")
        return small([&in, &out, &k](const Workspace& work) {
            const float* x = work.floats(in);
            const auto mean = static_cast<float>(k.sum(x, in.values()) / static_cast<double>(in.values()));
            alignas(64) float level[kBlockChannels];
            std::fill(level, level + kBlockChannels, mean);
            Word* bits = work.words(out);
            // The level is the same everywhere: where pixels are whole words, or less than one, a block of levels will do.
            if (in.channels % kBlockChannels == 0) return k.pack(x, nullptr, nullptr, level, kBlockChannels, in.values() / kBlockChannels, bits);
            if (in.channels < kBlockChannels) return k.pack(x, nullptr, nullptr, level, in.channels, in.pixels(), bits);
            for (std::size_t pixel = 0; pixel < in.pixels(); ++pixel)
                for (std::size_t c = 0; c < in.channels; c += kBlockChannels, ++bits)
                    k.pack(x + pixel * in.channels + c, nullptr, nullptr, level, std::min(kBlockChannels, in.channels - c), 1, bits);
        });
    reader.require(reader.word("level", "").empty(), "unknown level");
    const bool scaled = reader.has_tensor("scale") || reader.has_tensor("shift");
    return small([&in, &out, &k, scaled, scale = reader.channel_values("scale", in.channels, 1.0f),
                  shift = reader.channel_values("shift", in.channels, 0.0f),
                  level = reader.channel_values("level", in.channels, static_cast<float>(reader.number("level", 0.0)))](
                     const Workspace& work) {
        const std::size_t row = in.width * in.channels, words = in.width * words_for(in.channels);
        over_rows(work, in.height, row, [&](std::size_t y) {
            k.pack(work.floats(in) + y * row, scaled ? scale.data() : nullptr, scaled ? shift.data() : nullptr, level.data(),
                   in.channels, in.width, work.words(out) + y * words);
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
    return small([&in, &out, &k = reader.kernels, row, scale = repeated("scale"), shift = repeated("shift")](const Workspace& work) {
        over_rows(work, in.height, row, [&](std::size_t y) {
            k.quantize(work.floats(in) + y * row, scale.data(), shift.data(), row, work.bytes(out) + y * row);
        });
    });
}

Made make_affine(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    expect_shape(reader, out, in.height, in.width, in.channels);
    reader.require(reader.has_tensor("scale") && reader.has_tensor("shift"), "has no scale or shift");
    return small([&in, &out, &k = reader.kernels, scale = reader.channel_values("scale", in.channels, 1.0f),
                  shift = reader.channel_values("shift", in.channels, 0.0f)](const Workspace& work) {
        const std::size_t row = in.width * in.channels;
        over_rows(work, in.height, row, [&](std::size_t y) {
            k.affine(work.floats(in) + y * row, scale.data(), shift.data(), in.channels, in.width,
                     work.floats(out) + y * row);
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
        return small([&in, &out, &k, low = spec.low, high = spec.high](const Workspace& work) {
            const std::size_t row = in.width * in.channels;
            over_rows(work, in.height, row, [&](std::size_t y) {
                k.clamp(work.floats(in) + y * row, low, high, row, work.floats(out) + y * row);
            });
        });
    const std::vector<float> zeros(words_for(in.channels) * kBlockChannels, 0.0f), ones(zeros.size(), 1.0f);
    return small([&in, &out, &k, spec, zeros, ones](const Workspace& work) {
        const Finish finish{in.channels, ones.data(), zeros.data(), nullptr, spec.activation, spec.low, spec.high,
                            spec.slope.data(), zeros.data(), nullptr, work.floats(out), nullptr};
        over_rows(work, in.pixels(), in.channels, [&](std::size_t pixel) {
            for (std::size_t c = 0; c < in.channels; c += kBlockChannels) {
                float values[kBlockChannels] = {};
                std::memcpy(values, work.floats(in) + pixel * in.channels + c,
                            std::min(kBlockChannels, in.channels - c) * sizeof(float));
                k.finish(finish, values, c / kBlockChannels, pixel, pixel + 1);
            }
        });
    });
}

// a and b, sides of 1 repeated.
Made make_pair(const Reader& reader, bool sum) {
    const Buffer &a = reader.input("a"), &b = reader.input("b"), &out = reader.output("float");
    const auto fits = [](std::size_t x, std::size_t y) { return x == y || x == 1 || y == 1; };
    reader.require(fits(a.height, b.height) && fits(a.width, b.width) && fits(a.channels, b.channels),
                   "shapes do not fit together");
    expect_shape(reader, out, std::max(a.height, b.height), std::max(a.width, b.width), std::max(a.channels, b.channels));
    return small([&a, &b, &out, &k = reader.kernels, sum](const Workspace& work) {
        const auto apply = sum ? k.add : k.multiply;
        over_rows(work, out.height, out.width * out.channels, [&](std::size_t y) {
            const auto row = [&](const Buffer& in) {
                return work.floats(in) + (in.height == 1 ? 0 : y) * in.width * in.channels;
            };
            float* to = work.floats(out) + y * out.width * out.channels;
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

}  // namespace

Made make_elementwise(const Reader& reader) {
    const std::string& kind = reader.spec.kind;
    if (kind == "pack") return make_pack(reader);
    if (kind == "quantize") return make_quantize(reader);
    if (kind == "affine") return make_affine(reader);
    if (kind == "activation") return make_activation(reader);
    if (kind == "add") return make_pair(reader, true);
    if (kind == "multiply") return make_pair(reader, false);
    return nullptr;
}

}  // namespace rbnn
