// The forward pass: the engine's binary convolution on the signs of each image.
#include <algorithm>
#include <limits>

#include "base/threads.h"
#include "ops/binary_conv.h"
#include "simd/vectors.h"
#include "training/sign_conv.h"

namespace rbnn {

bool SignConv::supported() const {
    return in_channels % kLanes == 0 && out_channels % kLanes == 0 && in_channels * out_channels > 0 &&
           width + 2 * padding_x <= 64 && height > 0 && width > 0 && kernel_y * kernel_x > 0 &&
           kernel_y <= height + 2 * padding_y && kernel_x <= width + 2 * padding_x && stride_x * stride_y > 0;
}

SignFilters::SignFilters(const SignConv& conv, const float* signs, const float* scales)
    : positive(conv.out_channels * conv.taps() * conv.in_channels), scale(scales, scales + conv.out_channels) {
    for (std::size_t i = 0; i < positive.size(); ++i) positive[i] = signs[i] > 0.0f;
}

namespace {

BinaryConvolution make_convolution(const SignConv& conv, const SignFilters& filters) {
    std::vector<std::uint8_t> bits(filters.positive.size() / 8, 0);
    for (std::size_t i = 0; i < filters.positive.size(); ++i)
        bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | filters.positive[i] << i % 8);
    const Geometry geometry{{conv.height, conv.kernel_y, conv.stride_y, conv.padding_y, 1, conv.out_height()},
                            {conv.width, conv.kernel_x, conv.stride_x, conv.padding_x, 1, conv.out_width()}};
    Kept kept;
    return BinaryConvolution(conv.kernels, geometry, conv.in_channels, conv.out_channels, bits.data(), true, kept);
}

}  // namespace

void sign_conv_forward(const SignConv& conv, const SignFilters& filters, const float* x,
                       const std::function<float(std::size_t)>& level, std::uint64_t* planes, float* out,
                       const std::function<void(std::size_t, const float*)>& done) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const BinaryConvolution convolution = make_convolution(conv, filters);
    // out = scale·acc; the shift of −0 changes nothing.
    const std::size_t padded = words_for(conv.out_channels) * kBlockChannels, words = words_for(conv.in_channels);
    std::vector<float> scale(padded, 0.0f);
    const std::vector<float> shift(padded, -0.0f);
    std::copy(filters.scale.begin(), filters.scale.end(), scale.begin());
    parallel_for(conv.images, 1, conv.threads, [&](std::size_t begin, std::size_t end) {
        AlignedBytes scratch(convolution.scratch_bytes());
        std::vector<Word> pixels(conv.height * conv.width * words, 0);
        std::vector<float> levels(words * kWordBits), own(out ? 0 : conv.out_values());
        Call call;  // a training step is not interrupted
        for (std::size_t image = begin; image < end; ++image) {
            std::fill(levels.begin(), levels.end(), level(image));
            for (std::size_t y = 0; y < conv.height; ++y)
                conv.kernels.training.pack_row(
                    {x + image * conv.in_values() + y * conv.width * conv.in_channels, levels.data(), conv.width,
                     conv.in_channels, conv.stride_x, conv.padding_x, pixels.data() + y * conv.width * words,
                     planes + image * conv.plane_words() + y * conv.stride_x * conv.in_channels});
            float* y = out ? out + image * conv.out_values() : own.data();
            const Finish finish{conv.out_channels, scale.data(), shift.data(), nullptr, Activation::clamp, -kInfinity,
                                kInfinity, nullptr, shift.data(), nullptr, y, nullptr};
            convolution.run(pixels.data(), scratch.data(), finish, 1, call);
            if (done) done(image, y);
        }
    });
}

}  // namespace rbnn
