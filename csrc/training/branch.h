// A branch of a residual network in training, from its input to where it meets the shortcut:
//
//   out = end(norm(scale · (signs ⊛ sign(x))) + shortcut),   norm with mean and variance of the batch, or with running ones
//
// where end is hardtanh, or prelu(· + before) + after with a slope per channel.
//
// Between convolution and norm there are whole numbers, `counts` = signs ⊛ sign(x): kept in 16 bits, their sums exact.
#pragma once
#include <cstddef>
#include <cstdint>

#include "training/elementwise.h"
#include "training/sign_conv.h"

namespace rbnn {

constexpr std::size_t kMostCounts = 32767;   // of a filter's values

struct Norm {
    const float *weight, *bias;
    double eps;
    const float *running_mean = nullptr, *running_variance = nullptr;  // null: those of the batch
};

// One number per channel; without slopes the end is hardtanh, without the others they are 0.
struct BranchEnd {
    const float *slope, *before, *after;
};

// The statistics of the images (per image, or null: not standardised) and of the counts (per channel; not written where the norm
// has running ones).
struct BranchStatistics {
    float *image_mean, *image_inverse_std;
    double *mean, *variance;
};

// Everything that the backward pass wants to know of the forward pass; dense, channels last.
struct BranchState {
    const float *x, *shortcut;
    std::int16_t* counts;
    std::uint64_t* planes;
    float* out;
    BranchStatistics statistics;
};

void branch_forward(const SignConv& conv, const float* signs, const float* scale, const Norm& norm, const BranchEnd& end,
                    const BranchState& state);

struct BranchGradients {
    float *x, *shortcut;                    // without the latter x is the shortcut too
    float *weight, *scale;                  // of the signs, and null or the scale; without it of scale · signs
    float *norm_weight, *norm_bias;         // `before` has the same gradient as the bias
    float *slope, *after;                   // where there are slopes
};

void branch_backward(const SignConv& conv, const float* signs, const float* scale, const Norm& norm, const BranchEnd& end,
                     const BranchState& state, Tent tent, const float* grad, const BranchGradients& gradients);

}  // namespace rbnn
