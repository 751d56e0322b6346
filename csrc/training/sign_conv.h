// A convolution in training whose operands are signs: a = ±1 (0 in the padding), w = ±scale.
//
//   forward       out[p,o]   = scale_o · Σ_{tap,c} a·sign(w)           xor and popcount of packed bits
//   grad_input    grad_a     = Σ_{tap,o} grad·w                        sums of ± grad
//   grad_weight   grad_w     = Σ_p grad·a                              sums of ± grad
//
// In the two gradients one factor is a real number and the other a sign.  Four real numbers have only 16 signed sums.
// These are tabulated once and then looked up by the four signs, so one addition replaces four multiply-adds ("four
// Russians").  The lanes of a vector run over what the signs do not depend on: pixels in grad_input, output channels
// in grad_weight.
//
// Tensors are dense float32, channels last.  The order of all sums depends only on the shape, not on the number of
// threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "simd/kernels.h"

namespace rbnn {

struct SignConv {
    std::size_t images, height, width, in_channels, out_channels;
    std::size_t kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x;
    int threads;
    const Kernels& kernels;

    std::size_t out_height() const { return (height + 2 * padding_y - kernel_y) / stride_y + 1; }
    std::size_t out_width() const { return (width + 2 * padding_x - kernel_x) / stride_x + 1; }
    std::size_t taps() const { return kernel_y * kernel_x; }
    std::size_t in_values() const { return height * width * in_channels; }
    std::size_t out_values() const { return out_height() * out_width() * out_channels; }
    // The number of words in the planes of one image: one word for each row, each column modulo the stride and each
    // channel, whose bit j is the sign in the padded column j·stride + column.
    std::size_t plane_words() const { return height * stride_x * in_channels; }
    // Whether the kernels below support it: whole vectors of channels, and a padded row in one word.
    bool supported() const;
};

struct SignFilters {
    std::vector<std::uint8_t> positive;  // 1 for +1: (out_channels, taps, in_channels)
    std::vector<float> scale;            // one per filter; it may be negative

    // Signs are ±1, in the order of `positive`.
    SignFilters(const SignConv& conv, const float* signs, const float* scales);
};

// a = +1 if x > level(image), otherwise −1; level is called just before the image is read.  `planes` stores the bits
// of a for grad_weight.  Calls done(image, its output) when an image is written; without `out`, each is written to the
// same place.
void sign_conv_forward(const SignConv& conv, const SignFilters& filters, const float* x,
                       const std::function<float(std::size_t image)>& level, std::uint64_t* planes, float* out,
                       const std::function<void(std::size_t image, const float* y)>& done);

// Computes grad_input of one image.  Such a function has its own scratch buffers, so each thread makes one.
using ImageGradient = std::function<void(const float* grad, float* grad_a)>;

// Makes such functions.  `conv` and `filters` must outlive them.
std::function<ImageGradient()> image_gradients(const SignConv& conv, const SignFilters& filters);

// The same for kernels that look up sums in registers, and for all others.
std::function<ImageGradient()> image_gradients_in_registers(const SignConv& conv, const SignFilters& filters);
std::function<ImageGradient()> image_gradients_in_planes(const SignConv& conv, const SignFilters& filters);

// Calls done(image, its grad_a) when an image is written.
void sign_conv_grad_input(const SignConv& conv, const SignFilters& filters, const float* grad, float* grad_a,
                          const std::function<void(std::size_t image, float* grad_a)>& done);

// grad_weight in the order of SignFilters::positive.
void sign_conv_grad_weight(const SignConv& conv, const float* grad, const std::uint64_t* planes, float* grad_weight);

}  // namespace rbnn
