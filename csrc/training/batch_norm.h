// Where a branch ends, in training: batch norm, shortcut and hardtanh, fused.
//
//   out = hardtanh(gamma·(y − mean)/std + beta + shortcut),   mean and std of each channel over the batch
//
// Tensors are dense float32 of `rows` (pixels of all images) × `channels`, a multiple of 8.  What is summed in which order
// depends on the shape alone, not on the number of threads.
#pragma once
#include <cstddef>

#include "simd/kernels.h"

namespace rbnn {

struct Pixels {
    std::size_t rows, channels;
    int threads;
    const Kernels& kernels;
};

// Mean and variance (that of the batch itself: divided by rows) of each channel.
void batch_statistics(Pixels shape, const float* y, double* mean, double* variance);

// out = hardtanh(y·scale + shift + shortcut)
void norm_add_hardtanh(Pixels shape, const float* y, const float* scale, const float* shift, const float* shortcut, float* out);

// grad_sum = grad where |out| < 1, else 0: the gradient of what hardtanh was given.  Of each channel
// sum = Σ grad_sum, product = Σ grad_sum·(y − mean).
void norm_add_hardtanh_backward(Pixels shape, const float* grad, const float* out, const float* y, const float* mean,
                                float* grad_sum, double* sum, double* product);

// The same of counts (simd/training_kernels.h).  out = hardtanh(z), or with slopes prelu(z) + after, z = count·scale + shift +
// shortcut.  The counts get their bits.
void counts_hardtanh(Pixels shape, std::int16_t* counts, const float* scale, const float* shift, const float* shortcut, float* out);
void counts_prelu(Pixels shape, std::int16_t* counts, const float* scale, const float* shift, const float* shortcut,
                  const float* slope, const float* after, float* out);
// Of each channel sum = Σ grad_z, product = Σ grad_z·(count − mean), and the gradients of slope and after.
void counts_hardtanh_sums(Pixels shape, const float* grad, const std::int16_t* counts, const float* mean, double* sum,
                          double* product);
void counts_prelu_sums(Pixels shape, const float* grad, const std::int16_t* counts, const float* mean, const float* scale,
                       const float* shift, const float* shortcut, const float* slope, double* sum, double* product,
                       double* grad_slope, double* grad_after);

// grad_y = factor·grad_sum + pull·(y − mean) + shift
void norm_backward(Pixels shape, const float* grad_sum, const float* y, const float* mean, const float* factor,
                   const float* pull, const float* shift, float* grad_y);

}  // namespace rbnn
