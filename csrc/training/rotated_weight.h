// The values whose signs are an RBNN layer's binary weights, and their gradient (methods.md, eq. 5, 11 and 15).
//
//   ŵ = (w − mean)/std                     for each filter, std unbiased; a constant filter becomes zeros
//   w̃ = ŵ + α (Rᵀŵ − ŵ)                    Rᵀŵ = Vec(R1ᵀ W R2), α = |sin β|
//
// A filter has channels × taps values, and is rotated in this order.  In memory the taps may come first.
#pragma once
#include <cstddef>

#include "simd/kernels.h"

namespace rbnn {

struct Filters {
    std::size_t count, values;
    std::size_t taps;       // taps that come before the channels in memory; 1 if the order is that of the rotation
    const float* weight;    // (count, values)
    int threads;
    const Kernels& kernels;
};

// R1 (rows, rows) and R2 (columns, columns) rotate the first rows·columns values of a filter; null means no rotation.
struct Rotation {
    const float *r1, *r2;
    std::size_t rows, columns;
    const float* beta;      // one per filter, or one for all; null means α = 1
    std::size_t betas;
    bool in_gradient;       // if false, ∂w̃/∂ŵ = (1 − α) I, as in the authors' release

    float alpha(std::size_t filter) const;
};

// mixed = w̃, in the order of the weight.  turned = Rᵀŵ, in the order of the rotation, or null without one.  mean and
// inverse_std have one value per filter; inverse_std is 0 for a constant filter.
void rotated_weight(const Filters& filters, const Rotation& rotation, float* mixed, float* turned, float* mean,
                    float* inverse_std);

// grad is the gradient of w̃.  grad_beta has one value per filter, or is null.
void rotated_weight_backward(const Filters& filters, const Rotation& rotation, const float* grad, const float* turned,
                             const float* mean, const float* inverse_std, float* grad_weight, float* grad_beta);

}  // namespace rbnn
