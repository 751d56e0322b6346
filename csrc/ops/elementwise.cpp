// Operations on single values, and on pairs of values of two buffers.
#include <algorithm>
#include <cstring>

#include "ops/operations.h"
#include "ops/small_operation.h"

namespace rbnn {

Made make_pack_at_mean(const Kernels& k, const Buffer& in, const Buffer& out) {
    return small([&](const Workspace& work) {
        const float* x = work.floats(in);
        const auto mean = static_cast<float>(k.sum(x, in.values()) / static_cast<double>(in.values()));
        alignas(64) float level[kBlockChannels];
        std::fill(level, level + kBlockChannels, mean);
        Word* bits = work.words(out);
        // The level is the same everywhere.  If pixels are whole words, or less than one, a block of levels is enough.
        if (in.channels % kBlockChannels == 0)
            return k.pack(x, nullptr, nullptr, level, kBlockChannels, in.values() / kBlockChannels, bits);
        if (in.channels < kBlockChannels) return k.pack(x, nullptr, nullptr, level, in.channels, in.pixels(), bits);
        for (std::size_t pixel = 0; pixel < in.pixels(); ++pixel)
            for (std::size_t c = 0; c < in.channels; c += kBlockChannels, ++bits)
                k.pack(x + pixel * in.channels + c, nullptr, nullptr, level, std::min(kBlockChannels, in.channels - c),
                       1, bits);
    });
}

Made make_pack(const Kernels& k, const Buffer& in, const Buffer& out, const std::vector<float>& scale,
               const std::vector<float>& shift, const std::vector<float>& level) {
    return small([&, scale, shift, level](const Workspace& work) {
        const std::size_t row = in.width * in.channels, words = in.width * words_for(in.channels);
        over_rows(work, in.height, row, [&](std::size_t y) {
            k.pack(work.floats(in) + y * row, scale.empty() ? nullptr : scale.data(),
                   shift.empty() ? nullptr : shift.data(), level.data(), in.channels, in.width,
                   work.words(out) + y * words);
        });
    });
}

Made make_quantize(const Kernels& k, const Buffer& in, const Buffer& out, const std::vector<float>& scale,
                   const std::vector<float>& shift) {
    const std::size_t row = in.width * in.channels;
    // One number for each value of a row, so that the kernel sees rows as flat arrays.
    const auto repeated = [&](const std::vector<float>& once) {
        std::vector<float> values(row);
        for (std::size_t i = 0; i < row; ++i) values[i] = once[i % in.channels];
        return values;
    };
    return small([&in, &out, &k, row, scale = repeated(scale), shift = repeated(shift)](const Workspace& work) {
        over_rows(work, in.height, row, [&](std::size_t y) {
            k.quantize(work.floats(in) + y * row, scale.data(), shift.data(), row, work.bytes(out) + y * row);
        });
    });
}

Made make_affine(const Kernels& k, const Buffer& in, const Buffer& out, const std::vector<float>& scale,
                 const std::vector<float>& shift) {
    return small([&, scale, shift](const Workspace& work) {
        const std::size_t row = in.width * in.channels;
        over_rows(work, in.height, row, [&](std::size_t y) {
            k.affine(work.floats(in) + y * row, scale.data(), shift.data(), in.channels, in.width,
                     work.floats(out) + y * row);
        });
    });
}

Made make_activation(const Kernels& k, const Buffer& in, const Buffer& out, const ActivationParameters& activation) {
    if (activation.activation == Activation::clamp)
        return small([&, low = activation.low, high = activation.high](const Workspace& work) {
            const std::size_t row = in.width * in.channels;
            over_rows(work, in.height, row, [&](std::size_t y) {
                k.clamp(work.floats(in) + y * row, low, high, row, work.floats(out) + y * row);
            });
        });
    const std::vector<float> zeros(words_for(in.channels) * kBlockChannels, 0.0f), ones(zeros.size(), 1.0f);
    return small([&, activation, zeros, ones](const Workspace& work) {
        const Finish finish{in.channels,           ones.data(),    zeros.data(),     nullptr,
                            activation.activation, activation.low, activation.high,  activation.slope.data(),
                            zeros.data(),          nullptr,        work.floats(out), nullptr};
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

namespace {

// Applies a function to a and b.  Dimensions of size 1 are broadcast.
Made make_pair(void (*apply)(const float*, const float*, std::size_t, float*), const Buffer& a, const Buffer& b,
               const Buffer& out) {
    return small([&, apply](const Workspace& work) {
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

void divide(const float* a, const float* b, std::size_t n, float* out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = a[i] / b[i];
}
void maximum(const float* a, const float* b, std::size_t n, float* out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = a[i] > b[i] ? a[i] : b[i];
}
void minimum(const float* a, const float* b, std::size_t n, float* out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = a[i] < b[i] ? a[i] : b[i];
}

}  // namespace

Made make_divide(const Buffer& a, const Buffer& b, const Buffer& out) { return make_pair(divide, a, b, out); }
Made make_maximum(const Buffer& a, const Buffer& b, const Buffer& out) { return make_pair(maximum, a, b, out); }
Made make_minimum(const Buffer& a, const Buffer& b, const Buffer& out) { return make_pair(minimum, a, b, out); }
Made make_add(const Kernels& k, const Buffer& a, const Buffer& b, const Buffer& out) {
    return make_pair(k.add, a, b, out);
}
Made make_multiply(const Kernels& k, const Buffer& a, const Buffer& b, const Buffer& out) {
    return make_pair(k.multiply, a, b, out);
}

}  // namespace rbnn
