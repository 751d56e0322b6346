// Every operation that a program may have, made from buffers, shapes and weights.  The shapes must be consistent; the
// caller checks them (program/make_operation.cpp).  Arrays with one number per channel are padded to whole blocks.
#pragma once
#include <vector>

#include "ops/convolution.h"

namespace rbnn {

// Weights are bits, in whole bytes for each tap.  Padding is 0, or −1 if `zero_padding` is false.
Made make_binary_conv(const ConvolutionParameters& p, const std::uint8_t* weight, bool zero_padding);
Made make_grouped_binary_conv(const ConvolutionParameters& p, const std::uint8_t* weight, bool zero_padding,
                              std::size_t groups);
Made make_float_conv(const ConvolutionParameters& p, const float* weight, std::size_t groups);
Made make_float_conv(const ConvolutionParameters& p, const std::int8_t* weight, std::size_t groups);
// A byte u stands for u − zero[channel].
Made make_int8_conv(const ConvolutionParameters& p, const std::int8_t* weight, const std::vector<float>& zero);

// x·scale + shift > level; scale and shift may be empty together.
Made make_pack(const Kernels& k, const Buffer& in, const Buffer& out, const std::vector<float>& scale,
               const std::vector<float>& shift, const std::vector<float>& level);
// x > mean of all x
Made make_pack_at_mean(const Kernels& k, const Buffer& in, const Buffer& out);
Made make_quantize(const Kernels& k, const Buffer& in, const Buffer& out, const std::vector<float>& scale,
                   const std::vector<float>& shift);
Made make_affine(const Kernels& k, const Buffer& in, const Buffer& out, const std::vector<float>& scale,
                 const std::vector<float>& shift);
Made make_activation(const Kernels& k, const Buffer& in, const Buffer& out, const ActivationParameters& activation);
// Dimensions of size 1 are broadcast.
Made make_add(const Kernels& k, const Buffer& a, const Buffer& b, const Buffer& out);
Made make_multiply(const Kernels& k, const Buffer& a, const Buffer& b, const Buffer& out);
Made make_divide(const Buffer& a, const Buffer& b, const Buffer& out);
Made make_maximum(const Buffer& a, const Buffer& b, const Buffer& out);
Made make_minimum(const Buffer& a, const Buffer& b, const Buffer& out);
// A matrix product, height × width, for each channel.
Made make_matmul(const Buffer& a, const Buffer& b, const Buffer& out);

Made make_max_pool(const Kernels& k, const Buffer& in, const Buffer& out, const Geometry& geometry);
Made make_avg_pool(const Kernels& k, const Buffer& in, const Buffer& out, const Geometry& geometry, bool count_padding);
// For channels whose bit in `invert` is set, the minimum.
Made make_max_pool_bits(const Buffer& in, const Buffer& out, const Geometry& geometry, const std::vector<Word>& invert);
// The number of cells is the number of pixels of `out`.
Made make_adaptive_pool(const Kernels& k, const Buffer& in, const Buffer& out, bool maximum);
Made make_channel_mean(const Kernels& k, const Buffer& in, const Buffer& out);

// The axes of a reduction.
struct Axes {
    bool height, width, channels;
};
enum class Reduction { mean, sum, max, min };
Made make_reduction(const Buffer& in, const Buffer& out, Axes over, Reduction how);
// exp(x)/Σ exp(x), or its logarithm.
Made make_softmax(const Buffer& in, const Buffer& out, Axes over, bool log);
// (x − mean)/√(variance + eps), for groups of channels.
Made make_standardize(const Buffer& in, const Buffer& out, Axes over, std::size_t groups, double eps);
// x/(k + alpha·mean of x² over `window` channels)^beta
struct LocalNorm {
    std::size_t window;
    double alpha, beta, k;
};
Made make_local_norm(const Buffer& in, const Buffer& out, const LocalNorm& norm);

enum class Resize { nearest, nearest_exact, bilinear, bicubic };
// `scale` is the number of output pixels per input pixel, for height and width.  If it is empty, the sizes determine
// it.
Made make_resize(const Buffer& in, const Buffer& out, Resize mode, bool align, const std::vector<double>& scale,
                 Kept& kept);

enum class Along { height, width, channels };
Made make_concat(const std::vector<const Buffer*>& parts, const Buffer& out, Along axis);
// Permutes the axes of the values, taken as an array with these dimensions.
Made make_permute(const Buffer& in, const Buffer& out, const std::vector<std::size_t>& sides,
                  const std::vector<std::size_t>& order);
// The same values, in the order channels, rows, columns if `by_channels`, otherwise rows, columns, channels.
Made make_reshape(const Kernels& kernels, const Buffer& in, const Buffer& out, bool by_channels);
// `start`, `step` and `before` have three numbers each: for rows, columns and channels.
Made make_slice(const Buffer& in, const Buffer& out, const std::vector<std::size_t>& start,
                const std::vector<std::size_t>& step);
// Row (or column, or channel) i of the output is row places[i] of the input.
Made make_select(const Buffer& in, const Buffer& out, Along axis, const std::vector<std::size_t>& places);
Made make_pad(const Buffer& in, const Buffer& out, const std::vector<std::size_t>& before, float value);
// Padding with rows and columns of the image itself.
enum class Mirror { reflect, replicate, circular };
Made make_mirrored_pad(const Buffer& in, const Buffer& out, const std::vector<std::size_t>& before, Mirror mirror,
                       Kept& kept);
Made make_constant(const Buffer& out, const float* values);

}  // namespace rbnn
