// The forward pass: xor and popcount.
//
// Zero padding has bit 0 and must count as nothing:  acc = base − 2·(popcount over all taps), see `border_base`.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "simd/dispatch.h"
#include "simd/kernels.h"
#include "training/sign_conv.h"
#include "base/threads.h"
#include "simd/vectors.h"
#include "ops/geometry.h"

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

struct Plan {
    SignConv conv;
    std::size_t pixel, run, words;      // bytes of a pixel; words of a row of taps, of all taps
    Word last;                          // the bits of a row's last word
    std::size_t line;                   // bytes of a padded row of pixels
    std::vector<Word> weights;          // (out_channels, words), or in the order of CountRow
    Borders borders;
    std::vector<std::int32_t> base;     // (kinds of border, out_channels)
};

Plan make_plan(const SignConv& conv, const SignFilters& filters) {
    const std::size_t bits = conv.kernel_x * conv.in_channels;  // of a row of taps
    Plan plan{conv, conv.in_channels / 8, words_for(bits), 0, 0, 0, {}, {}, {}};
    plan.words = conv.kernel_y * plan.run;
    plan.last = ~Word{0} >> (plan.run * kWordBits - bits);
    plan.line = (conv.width + 2 * conv.padding_x) * plan.pixel;
    const std::size_t values = conv.taps() * conv.in_channels;
    plan.weights.assign(conv.out_channels * plan.words, 0);
    const auto place = [&](std::size_t o, std::size_t word) {
        return conv.kernels ? (o / 8 * plan.words + word) * 8 + o % 8 : o * plan.words + word;
    };
    std::vector<std::int32_t> ones(conv.out_channels * conv.taps(), 0);
    for (std::size_t o = 0; o < conv.out_channels; ++o)
        for (std::size_t i = 0; i < values; ++i)
            if (filters.positive[o * values + i]) {
                plan.weights[place(o, i / bits * plan.run + i % bits / kWordBits)] |= Word{1} << i % bits % kWordBits;
                ++ones[o * conv.taps() + i / conv.in_channels];
            }
    plan.borders = find_borders({{conv.height, conv.kernel_y, conv.stride_y, conv.padding_y, 1, conv.out_height()},
                                 {conv.width, conv.kernel_x, conv.stride_x, conv.padding_x, 1, conv.out_width()}});
    plan.base.resize(plan.borders.kinds.size() * conv.out_channels);
    TapSums<std::int64_t> sums(conv.kernel_y, conv.kernel_x);
    for (std::size_t o = 0; o < conv.out_channels; ++o) {
        sums.set([&](std::size_t tap) { return ones[o * conv.taps() + tap]; });
        for (std::size_t kind = 0; kind < plan.borders.kinds.size(); ++kind)
            plan.base[kind * conv.out_channels + o] = border_base(sums, plan.borders.kinds[kind], conv.in_channels);
    }
    return plan;
}

using Ints = std::int32_t __attribute__((vector_size(32)));

// One row of pixels: a plane per channel, a bit per pixel.  Half a word at a time: lanes of 32 bits are as many as floats.
RBNN_CLONES void pack_planes(const SignConv& conv, const float* x, float level, Word* planes) {
    const std::size_t channels = conv.in_channels, stride = conv.stride_x;
    const Floats threshold = Floats{} + level;
    for (std::size_t remainder = 0; remainder < stride; ++remainder)
        for (std::size_t c = 0; c < channels; c += kLanes) {
            // The first padded column of this remainder that lies in the picture.
            const std::size_t p = conv.padding_x, end = p + conv.width;
            std::size_t column = p + (remainder + stride - p % stride) % stride;
            Ints half[2] = {};
            for (int h = 0; h < 2; ++h)
                for (; column < std::min(end, static_cast<std::size_t>(h + 1) * 32 * stride); column += stride) {
                    const Ints above = load(x + (column - p) * channels + c) > threshold;
                    half[h] |= above & static_cast<std::int32_t>(std::uint32_t{1} << column / stride % 32);
                }
            for (std::size_t i = 0; i < kLanes; ++i)
                planes[remainder * channels + c + i] =
                    static_cast<std::uint32_t>(half[0][i]) | Word{static_cast<std::uint32_t>(half[1][i])} << 32;
        }
}

// One row of pixels: a bit per channel, pixel after pixel.
void pack_pixels(const SignConv& conv, const Kernels& kernels, const float* x, const float* levels, Word* words,
                 std::uint8_t* bytes) {
    const std::size_t pixel = conv.in_channels / 8, stride = words_for(conv.in_channels);
    kernels.pack(x, nullptr, nullptr, levels, conv.in_channels, conv.width, words);
    for (std::size_t i = 0; i < conv.width; ++i) std::memcpy(bytes + i * pixel, words + i * stride, pixel);
}

template <std::size_t kWords>
RBNN_INLINE_ALWAYS void count_pixels(const Plan& plan, const Word* patches, std::size_t words_given, std::size_t first,
                                     std::size_t count, const float* scale, std::int32_t* counts, float* out) {
    const std::size_t words = kWords ? kWords : words_given, channels = plan.conv.out_channels;
    for (std::size_t pixel = 0; pixel < count; ++pixel, patches += words, out += channels) {
        const Word* weight = plan.weights.data();
        for (std::size_t o = 0; o < channels; ++o, weight += words) {
            int total = 0;
            for (std::size_t i = 0; i < words; ++i) total += __builtin_popcountll(patches[i] ^ weight[i]);
            counts[o] = total;
        }
        const std::int32_t* base = plan.base.data() + plan.borders.of_pixel[first + pixel] * channels;
        for (std::size_t o = 0; o < channels; ++o) out[o] = static_cast<float>(base[o] - 2 * counts[o]) * scale[o];
    }
}

RBNN_CLONES void count_row(const Plan& plan, const Word* patches, std::size_t first, std::size_t count, const float* scale,
                           std::int32_t* counts, float* out) {
    switch (plan.words) {
        case 3: return count_pixels<3>(plan, patches, 3, first, count, scale, counts, out);
        case 6: return count_pixels<6>(plan, patches, 6, first, count, scale, counts, out);
        case 9: return count_pixels<9>(plan, patches, 9, first, count, scale, counts, out);
        default: return count_pixels<0>(plan, patches, plan.words, first, count, scale, counts, out);
    }
}

}  // namespace

void sign_conv_forward(const SignConv& conv, const SignFilters& filters, const float* x,
                       const std::function<float(std::size_t)>& level, std::uint64_t* planes, float* out) {
    const Plan plan = make_plan(conv, filters);
    const Kernels& kernels = find_kernels("");
    const std::size_t width = conv.out_width();
    parallel_for(conv.images, 1, conv.threads, [&](std::size_t begin, std::size_t end) {
        // Rows above and below the picture stay zero, like the margins.
        std::vector<std::uint8_t> bytes((conv.height + 2 * conv.padding_y) * plan.line + sizeof(Word), 0);
        std::vector<Word> patches(width * plan.words, 0);
        std::vector<std::int32_t> counts(conv.out_channels);
        std::vector<Word> words(conv.width * words_for(conv.in_channels));
        std::vector<float> levels(words_for(conv.in_channels) * kWordBits);
        for (std::size_t image = begin; image < end; ++image) {
            std::fill(levels.begin(), levels.end(), level(image));
            for (std::size_t y = 0; y < conv.height; ++y) {
                const float* row = x + image * conv.in_values() + y * conv.width * conv.in_channels;
                Word* plane = planes + image * conv.plane_words() + y * conv.stride_x * conv.in_channels;
                std::uint8_t* pixels = bytes.data() + (y + conv.padding_y) * plan.line + conv.padding_x * plan.pixel;
                if (conv.kernels) {
                    conv.kernels->pack_row(
                        {row, levels[0], conv.width, conv.in_channels, conv.stride_x, conv.padding_x, pixels, plane});
                    continue;
                }
                pack_planes(conv, row, levels[0], plane);
                pack_pixels(conv, kernels, row, levels.data(), words.data(), pixels);
            }
            for (std::size_t y = 0; y < conv.out_height(); ++y) {
                float* out_row = out + image * conv.out_values() + y * width * conv.out_channels;
                if (conv.kernels) {
                    conv.kernels->count_row({bytes.data() + y * conv.stride_y * plan.line, plan.line,
                                             conv.stride_x * plan.pixel, conv.kernel_y, plan.run, plan.last,
                                             plan.weights.data(), width, conv.out_channels, plan.base.data(),
                                             plan.borders.of_pixel.data() + y * width, filters.scale.data(), out_row});
                    continue;
                }
                Word* patch = patches.data();
                for (std::size_t i = 0; i < width; ++i) {
                    const std::uint8_t* from = bytes.data() + y * conv.stride_y * plan.line + i * conv.stride_x * plan.pixel;
                    for (std::size_t ky = 0; ky < conv.kernel_y; ++ky, from += plan.line) {
                        for (std::size_t j = 0; j < plan.run; ++j) std::memcpy(patch + j, from + j * sizeof(Word), sizeof(Word));
                        patch[plan.run - 1] &= plan.last;
                        patch += plan.run;
                    }
                }
                count_row(plan, patches.data(), y * width, width, filters.scale.data(), counts.data(), out_row);
            }
        }
    });
}

}  // namespace rbnn
