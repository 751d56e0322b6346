// A branch of a residual network in training, from its input to the sum with the shortcut:
//
//   out = end(norm(scale · (signs ⊛ sign(x))) + shortcut)
//
// The norm uses the mean and variance of the batch, or running ones.  The end is hardtanh, or prelu(· + before) +
// after with a slope per channel.
//
// The values between convolution and norm, `counts` = signs ⊛ sign(x), are integers.  They are stored in 16 bits, and
// their sums are exact.
#pragma once
#include <cstddef>
#include <cstdint>

#include "training/elementwise.h"
#include "training/sign_conv.h"

namespace rbnn {

constexpr std::size_t kMostCounts = 32767;   // the largest number of values in a filter

struct Norm {
    const float *weight, *bias;
    double eps;
    const float *running_mean = nullptr, *running_variance = nullptr;  // null: use those of the batch
};

// One number per channel each.  Without slopes the end is hardtanh; missing `before` and `after` are 0.
struct BranchEnd {
    const float *slope, *before, *after;
};

// The statistics of the images (per image; null if they are not standardised) and of the counts (per channel; not
// written if the norm uses running statistics).
struct BranchStatistics {
    float *image_mean, *image_inverse_std;
    double *mean, *variance;
};

// What the backward pass needs from the forward pass.  Tensors are dense, with the channels last.
struct BranchState {
    const float *x, *shortcut;
    std::int16_t* counts;
    std::uint64_t* planes;
    float* out;
    BranchStatistics statistics;
};

void branch_forward(const SignConv& conv, const float* signs, const float* scale, const Norm& norm,
                    const BranchEnd& end, const BranchState& state);

struct BranchGradients {
    float *x, *shortcut;                    // if shortcut is null, x is also the shortcut
    float *weight, *scale;                  // gradients of signs and scale; if scale is null, of scale · signs
    float *norm_weight, *norm_bias;         // `before` has the same gradient as the bias
    float *slope, *after;                   // if there are slopes
};

void branch_backward(const SignConv& conv, const float* signs, const float* scale, const Norm& norm,
                     const BranchEnd& end, const BranchState& state, Tent tent, const float* grad,
                     const BranchGradients& gradients);

}  // namespace rbnn
