#include "training/elementwise.h"

#include <algorithm>
#include <cmath>

#include "base/threads.h"

namespace rbnn {
namespace {

constexpr std::size_t kGrain = 1 << 14;      // values; smaller parts cost more to distribute than to compute
constexpr float kSmallestStd = 1e-5f;        // keeps the gradient of a constant image finite

void statistics(const Kernels& kernels, std::size_t n, const float* x, float* mean, float* inverse_std) {
    *mean = static_cast<float>(kernels.sum(x, n) / static_cast<double>(n));
    const double squares = kernels.training.squares(n, x, *mean);
    const float std = static_cast<float>(std::sqrt(squares / static_cast<double>(std::max<std::size_t>(n, 2) - 1)));
    *inverse_std = 1.0f / std::max(std, kSmallestStd);
}

template <class Body>
void over_values(Shape shape, const Body& body) {
    parallel_for(shape.images * shape.values, kGrain, shape.threads,
                 [&](std::size_t begin, std::size_t end) { body(begin, end - begin); });
}

template <class Body>
void over_images(Shape shape, const Body& body) {
    parallel_for(shape.images, std::max<std::size_t>(kGrain / std::max<std::size_t>(shape.values, 1), 1),
                 shape.threads, [&](std::size_t begin, std::size_t end) {
                     for (std::size_t image = begin; image < end; ++image) body(image, image * shape.values);
                 });
}

// The backward pass of one image.
void standardised_backward(Shape shape, const float* grad, const float* x, float mean, float inverse_std, Tent tent,
                           const float* added, float* grad_x) {
    // dx_i = (ĝ_i − Σĝ/n − x̂_i·Σ(ĝ x̂)/(n−1)) / std,   ĝ = grad·tent(x̂).  A clamped std does not depend on x.
    const std::size_t n = shape.values;
    double sum, product;
    shape.kernels.training.standardised_tent(n, tent, grad, x, mean, inverse_std, grad_x, &sum, &product);
    if (inverse_std >= 1.0f / kSmallestStd) product = 0.0;
    const double pull = product / static_cast<double>(std::max<std::size_t>(n, 2) - 1);
    const double shift = sum / static_cast<double>(n);
    shape.kernels.training.standardised_finish(n, x, mean, inverse_std, static_cast<float>(shift),
                                               static_cast<float>(pull), added, grad_x);
}

}  // namespace

void sign_forward(Shape shape, const float* x, float* out) {
    over_values(shape, [&](std::size_t at, std::size_t n) { shape.kernels.training.sign(n, x + at, 0.0f, out + at); });
}

void sign_backward(Shape shape, const float* grad, const float* x, float* grad_x, Tent tent) {
    over_values(shape, [&](std::size_t at, std::size_t n) {
        shape.kernels.training.tent(n, tent, grad + at, x + at, grad_x + at);
    });
}

void standardised_sign_forward(Shape shape, const float* x, float* out, float* mean, float* inverse_std) {
    over_images(shape, [&](std::size_t image, std::size_t at) {
        statistics(shape.kernels, shape.values, x + at, mean + image, inverse_std + image);
        shape.kernels.training.sign(shape.values, x + at, mean[image], out + at);
    });
}

void standardised_sign_backward(Shape shape, const float* grad, const float* x, const float* mean,
                                const float* inverse_std, float* grad_x, Tent tent) {
    over_images(shape, [&](std::size_t image, std::size_t at) {
        standardised_backward(shape, grad + at, x + at, mean[image], inverse_std[image], tent, nullptr, grad_x + at);
    });
}

float ImageSigns::level(std::size_t i) const {
    if (!mean) return 0.0f;
    statistics(image.kernels, image.values, x + i * image.values, mean + i, inverse_std + i);
    return mean[i];
}

void ImageSigns::backward(std::size_t i, Tent tent, const float* added, float* grad) const {
    const float* at = x + i * image.values;
    if (mean) return standardised_backward(image, grad, at, mean[i], inverse_std[i], tent, added, grad);
    image.kernels.training.tent(image.values, tent, grad, at, grad);
    if (added) image.kernels.add(grad, added, image.values, grad);
}

void add_hardtanh_forward(Shape shape, const float* a, const float* b, float* out) {
    over_values(shape, [&](std::size_t at, std::size_t n) {
        shape.kernels.training.add_hardtanh(n, a + at, b + at, out + at);
    });
}

void add_hardtanh_backward(Shape shape, const float* grad, const float* out, float* grad_in) {
    over_values(shape, [&](std::size_t at, std::size_t n) {
        shape.kernels.training.hardtanh_grad(n, grad + at, out + at, grad_in + at);
    });
}

}  // namespace rbnn
