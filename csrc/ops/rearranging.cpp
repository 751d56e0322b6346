// Values that move to another place and stay what they are.
#include <algorithm>
#include <array>
#include <cstring>

#include "ops/small_operation.h"

namespace rbnn {
namespace {

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
    return small([parts, &out](const Workspace& work) {
        float* to = work.floats(out);
        for (std::size_t pixel = 0; pixel < out.pixels(); ++pixel)
            for (const Buffer* part : parts) {
                std::memcpy(to, work.floats(*part) + pixel * part->channels, part->channels * sizeof(float));
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
        return small([&in, &out](const Workspace& work) { std::memcpy(work.floats(out), work.floats(in), in.bytes()); });
    return small([&in, &out](const Workspace& work) {
        // Value i of torch's order, there and here.
        const float* from = work.floats(in);
        float* to = work.floats(out);
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
    return small([&in, &out, start, step](const Workspace& work) {
        float* to = work.floats(out);
        for (std::size_t y = 0; y < out.height; ++y)
            for (std::size_t x = 0; x < out.width; ++x, to += out.channels) {
                const float* from = work.floats(in) + ((start[0] + y * step[0]) * in.width + start[1] + x * step[1]) * in.channels;
                for (std::size_t c = 0; c < out.channels; ++c) to[c] = from[start[2] + c * step[2]];
            }
    });
}

Made make_pad(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const auto before = reader.whole("before", 3, 0, kLargestChannels, {}), after = reader.whole("after", 3, 0, kLargestChannels, {});
    expect_shape(reader, out, before[0] + in.height + after[0], before[1] + in.width + after[1],
                 before[2] + in.channels + after[2]);
    return small([&in, &out, before, value = static_cast<float>(reader.number("value", 0.0))](const Workspace& work) {
        std::fill(work.floats(out), work.floats(out) + out.values(), value);
        for (std::size_t y = 0; y < in.height; ++y)
            for (std::size_t x = 0; x < in.width; ++x)
                std::memcpy(work.floats(out) + ((y + before[0]) * out.width + x + before[1]) * out.channels + before[2],
                            work.floats(in) + (y * in.width + x) * in.channels, in.channels * sizeof(float));
    });
}

Made make_constant(const Reader& reader) {
    const Buffer& out = reader.output("float");
    const auto* data = static_cast<const float*>(
        reader.tensor("value", Tensor::Type::float32, {out.height, out.width, out.channels}).data);
    return small([&out, values = std::vector<float>(data, data + out.values())](const Workspace& work) {
        std::memcpy(work.floats(out), values.data(), out.bytes());
    });
}

}  // namespace

Made make_rearranging(const Reader& reader) {
    const std::string& kind = reader.spec.kind;
    if (kind == "concat") return make_concat(reader);
    if (kind == "reshape") return make_reshape(reader);
    if (kind == "slice") return make_slice(reader);
    if (kind == "pad") return make_pad(reader);
    if (kind == "constant") return make_constant(reader);
    return nullptr;
}

}  // namespace rbnn
