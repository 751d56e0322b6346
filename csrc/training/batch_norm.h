// The end of a branch in training: batch norm, shortcut and hardtanh, fused.
//
//   out = hardtanh(gamma·(y − mean)/std + beta + shortcut),   mean and std of each channel over the batch
//
// Tensors are dense float32 of `rows` (pixels of all images) × `channels`, a multiple of 8.  The order of all sums
// depends only on the shape, not on the number of threads.
#pragma once
#include <cstddef>

#include "simd/kernels.h"

namespace rbnn {

struct Pixels {
    std::size_t rows, channels;
    int threads;
    const Kernels& kernels;
};

// Mean and variance of each channel.  The variance is that of the batch itself, divided by rows.
void batch_statistics(Pixels shape, const float* y, double* mean, double* variance);

// out = hardtanh(y·scale + shift + shortcut)
void norm_add_hardtanh(Pixels shape, const float* y, const float* scale, const float* shift, const float* shortcut,
                       float* out);

// grad_sum = grad if |out| < 1, otherwise 0: the gradient of the input of hardtanh.  For each channel,
// sum = Σ grad_sum and product = Σ grad_sum·(y − mean).
void norm_add_hardtanh_backward(Pixels shape, const float* grad, const float* out, const float* y, const float* mean,
                                float* grad_sum, double* sum, double* product);

// The same for counts (simd/training_kernels.h).  out = hardtanh(z) or, with slopes, prelu(z) + after, where
// z = count·scale + shift + shortcut.  Sets the lowest bits of the counts.
void counts_hardtanh(Pixels shape, std::int16_t* counts, const float* scale, const float* shift, const float* shortcut,
                     float* out);
void counts_prelu(Pixels shape, std::int16_t* counts, const float* scale, const float* shift, const float* shortcut,
                  const float* slope, const float* after, float* out);
// For each channel, sum = Σ grad_z, product = Σ grad_z·(count − mean), and the gradients of slope and after.
void counts_hardtanh_sums(Pixels shape, const float* grad, const std::int16_t* counts, const float* mean, double* sum,
                          double* product);
void counts_prelu_sums(Pixels shape, const float* grad, const std::int16_t* counts, const float* mean,
                       const float* scale, const float* shift, const float* shortcut, const float* slope, double* sum,
                       double* product, double* grad_slope, double* grad_after);

// grad_y = factor·grad_sum + pull·(y − mean) + shift
void norm_backward(Pixels shape, const float* grad_sum, const float* y, const float* mean, const float* factor,
                   const float* pull, const float* shift, float* grad_y);

}  // namespace rbnn
