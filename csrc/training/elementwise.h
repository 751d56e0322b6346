// The fused elementwise work of a binary layer in training: each function reads and writes every tensor once.
//
// Tensors are dense float32 of `images` × `values`; the order of the values inside an image does not matter.
#pragma once
#include <cstddef>

#include "simd/kernels.h"

namespace rbnn {

struct Shape {
    std::size_t images, values;
    int threads;
    const Kernels& kernels;
};

// out = +1 if x > 0, otherwise −1.
void sign_forward(Shape shape, const float* x, float* out);
// grad_x = grad · tent(x); grad_x may be grad.
void sign_backward(Shape shape, const float* grad, const float* x, float* grad_x, Tent tent);

// Per image: mean (summed in double, rounded to float) and 1 / unbiased standard deviation; out = sign(x − mean).
void standardised_sign_forward(Shape shape, const float* x, float* out, float* mean, float* inverse_std);
// grad_x through the tent at x̂ = (x − mean)·inverse_std and through the standardisation; grad_x may be grad.
void standardised_sign_backward(Shape shape, const float* grad, const float* x, const float* mean,
                                const float* inverse_std, float* grad_x, Tent tent);

// The signs of images that are processed one by one.  They are standardised if mean and inverse_std are not null.
struct ImageSigns {
    Shape image;                    // of one image
    const float* x;
    float *mean, *inverse_std;      // per image, or null

    // Measures an image and returns its level: its signs are those of x − level.
    float level(std::size_t i) const;
    // Turns the gradient of an image's signs into that of x, plus `added` if that is not null.
    void backward(std::size_t i, Tent tent, const float* added, float* grad) const;
};

// out = clamp(a + b, −1, 1); out may be a.
void add_hardtanh_forward(Shape shape, const float* a, const float* b, float* out);
// grad_in = grad if |out| < 1, otherwise 0: the gradient of both a and b.
void add_hardtanh_backward(Shape shape, const float* grad, const float* out, float* grad_in);

}  // namespace rbnn
