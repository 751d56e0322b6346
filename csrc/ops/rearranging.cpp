// Values that move to another place and stay what they are.
#include <algorithm>
#include <cstring>

#include "ops/operations.h"
#include "ops/small_operation.h"

namespace rbnn {

Made make_concat(const std::vector<const Buffer*>& parts, const Buffer& out) {
    return small([parts, &out](const Workspace& work) {
        float* to = work.floats(out);
        for (std::size_t pixel = 0; pixel < out.pixels(); ++pixel)
            for (const Buffer* part : parts) {
                std::memcpy(to, work.floats(*part) + pixel * part->channels, part->channels * sizeof(float));
                to += part->channels;
            }
    });
}

Made make_reshape(const Buffer& in, const Buffer& out, bool by_channels) {
    // With one pixel, or one channel, on both sides the two orders are the same.
    const auto plain = [](const Buffer& b) { return b.pixels() == 1 || b.channels == 1; };
    if (!by_channels || (plain(in) && plain(out)))
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

Made make_slice(const Buffer& in, const Buffer& out, const std::vector<std::size_t>& start, const std::vector<std::size_t>& step) {
    return small([&in, &out, start, step](const Workspace& work) {
        float* to = work.floats(out);
        for (std::size_t y = 0; y < out.height; ++y)
            for (std::size_t x = 0; x < out.width; ++x, to += out.channels) {
                const float* from = work.floats(in) + ((start[0] + y * step[0]) * in.width + start[1] + x * step[1]) * in.channels;
                for (std::size_t c = 0; c < out.channels; ++c) to[c] = from[start[2] + c * step[2]];
            }
    });
}

Made make_pad(const Buffer& in, const Buffer& out, const std::vector<std::size_t>& before, float value) {
    return small([&in, &out, before, value](const Workspace& work) {
        std::fill(work.floats(out), work.floats(out) + out.values(), value);
        for (std::size_t y = 0; y < in.height; ++y)
            for (std::size_t x = 0; x < in.width; ++x)
                std::memcpy(work.floats(out) + ((y + before[0]) * out.width + x + before[1]) * out.channels + before[2],
                            work.floats(in) + (y * in.width + x) * in.channels, in.channels * sizeof(float));
    });
}

Made make_constant(const Buffer& out, const float* data) {
    return small([&out, values = std::vector<float>(data, data + out.values())](const Workspace& work) {
        std::memcpy(work.floats(out), values.data(), out.bytes());
    });
}

}  // namespace rbnn
