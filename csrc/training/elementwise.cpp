#include "training/elementwise.h"

#include <algorithm>
#include <cmath>

#include "base/threads.h"
#include "simd/vectors.h"

namespace rbnn {
namespace {

constexpr std::size_t kGrain = 1 << 14;      // values; smaller parts cost more to hand out than to compute
constexpr float kSmallestStd = 1e-5f;        // a constant image has no scale: its gradient stays finite

RBNN_CLONES void sign_run(std::size_t n, const float* x, float threshold, float* out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = x[i] > threshold ? 1.0f : -1.0f;
}

RBNN_CLONES void tent_run(std::size_t n, Tent tent, const float* grad, const float* x, float* out) {
#pragma GCC ivdep  // out may be grad: each value depends on its own place alone
    for (std::size_t i = 0; i < n; ++i) {
        const float size = std::fabs(x[i]);
        const float slope = std::max(tent.peak - tent.slope * size, 0.0f);
        out[i] = size <= tent.support ? grad[i] * slope : 0.0f;
    }
}

// Sums in blocks of floats, blocks in double: as exact as needed, and the inner loop is vectorised.
constexpr std::size_t kSummed = 256;
constexpr std::size_t kParts = 16;

RBNN_CLONES double sum_run(std::size_t n, const float* x) {
    double total = 0.0;
    std::size_t i = 0;
    for (; i + kSummed <= n; i += kSummed) {
        double lanes[kParts] = {};
        for (std::size_t j = 0; j < kSummed; j += kParts)
            for (std::size_t lane = 0; lane < kParts; ++lane) lanes[lane] += x[i + j + lane];
        for (double lane : lanes) total += lane;
    }
    for (; i < n; ++i) total += x[i];
    return total;
}

RBNN_CLONES double square_sum_run(std::size_t n, const float* x, float mean) {
    double total = 0.0;
    std::size_t i = 0;
    for (; i + kSummed <= n; i += kSummed) {
        float lanes[kParts] = {};
        for (std::size_t j = 0; j < kSummed; j += kParts)
            for (std::size_t lane = 0; lane < kParts; ++lane) {
                const float centred = x[i + j + lane] - mean;
                lanes[lane] += centred * centred;
            }
        for (float lane : lanes) total += lane;
    }
    for (; i < n; ++i) total += static_cast<double>(x[i] - mean) * (x[i] - mean);
    return total;
}

void statistics_run(std::size_t n, const float* x, float* mean, float* inverse_std) {
    *mean = static_cast<float>(sum_run(n, x) / static_cast<double>(n));
    const double squares = square_sum_run(n, x, *mean);
    const float std = static_cast<float>(std::sqrt(squares / static_cast<double>(std::max<std::size_t>(n, 2) - 1)));
    *inverse_std = 1.0f / std::max(std, kSmallestStd);
}

// out = tent(x̂)·grad, and its sum and its sum of products with x̂.
RBNN_CLONES void standardised_tent_run(std::size_t n, Tent tent, const float* grad, const float* x, float mean,
                                       float inverse_std, float* out, double* sum, double* product) {
    double total = 0.0, total_product = 0.0;
    std::size_t i = 0;
    for (; i < n; i += kSummed) {
        const std::size_t count = std::min(kSummed, n - i);
        float lanes[kParts] = {}, product_lanes[kParts] = {};
        const auto step = [&](std::size_t at, std::size_t lane) {
            const float standard = (x[at] - mean) * inverse_std, size = std::fabs(standard);
            const float slope = std::max(tent.peak - tent.slope * size, 0.0f);
            const float value = size <= tent.support ? grad[at] * slope : 0.0f;
            out[at] = value;
            lanes[lane] += value;
            product_lanes[lane] += value * standard;
        };
        std::size_t j = 0;
        for (; j + kParts <= count; j += kParts)
            for (std::size_t lane = 0; lane < kParts; ++lane) step(i + j + lane, lane);
        for (std::size_t lane = 0; j + lane < count; ++lane) step(i + j + lane, lane);
        for (std::size_t lane = 0; lane < kParts; ++lane) total += lanes[lane], total_product += product_lanes[lane];
    }
    *sum = total;
    *product = total_product;
}

RBNN_CLONES void standardised_finish_run(std::size_t n, const float* x, float mean, float inverse_std, float shift,
                                         float pull, float* out) {
    for (std::size_t i = 0; i < n; ++i)
        out[i] = inverse_std * (out[i] - shift - (x[i] - mean) * inverse_std * pull);
}

RBNN_CLONES void add_hardtanh_run(std::size_t n, const float* a, const float* b, float* out) {
#pragma GCC ivdep  // out may be a: each value depends on its own place alone
    for (std::size_t i = 0; i < n; ++i) {
        const float sum = a[i] + b[i];
        // Written so that NaN stays NaN: a loss that is not finite must be seen.
        out[i] = sum < -1.0f ? -1.0f : (sum > 1.0f ? 1.0f : sum);
    }
}

RBNN_CLONES void hardtanh_grad_run(std::size_t n, const float* grad, const float* out, float* grad_in) {
    for (std::size_t i = 0; i < n; ++i) grad_in[i] = std::fabs(out[i]) < 1.0f ? grad[i] : 0.0f;
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

}  // namespace

void sign_forward(Shape shape, const float* x, float* out) {
    over_values(shape, [&](std::size_t at, std::size_t n) { sign_run(n, x + at, 0.0f, out + at); });
}

void sign_backward(Shape shape, Tent tent, const float* grad, const float* x, float* grad_x) {
    over_values(shape, [&](std::size_t at, std::size_t n) { tent_run(n, tent, grad + at, x + at, grad_x + at); });
}

void image_statistics(Shape shape, const float* x, float* mean, float* inverse_std) {
    over_images(shape, [&](std::size_t image, std::size_t at) {
        statistics_run(shape.values, x + at, mean + image, inverse_std + image);
    });
}

void standardised_sign_forward(Shape shape, const float* x, float* mean, float* inverse_std, float* out) {
    over_images(shape, [&](std::size_t image, std::size_t at) {
        statistics_run(shape.values, x + at, mean + image, inverse_std + image);
        sign_run(shape.values, x + at, mean[image], out + at);
    });
}

void standardised_sign_backward(Shape shape, Tent tent, const float* grad, const float* x, const float* mean,
                                const float* inverse_std, float* grad_x) {
    const std::size_t n = shape.values;
    over_images(shape, [&](std::size_t image, std::size_t at) {
        // dx_i = (ĝ_i − Σĝ/n − x̂_i·Σ(ĝ x̂)/(n−1)) / std,   ĝ = grad·tent(x̂);  a clamped std does not depend on x
        double sum, product;
        standardised_tent_run(n, tent, grad + at, x + at, mean[image], inverse_std[image], grad_x + at, &sum, &product);
        if (inverse_std[image] >= 1.0f / kSmallestStd) product = 0.0;
        standardised_finish_run(n, x + at, mean[image], inverse_std[image], static_cast<float>(sum / static_cast<double>(n)),
                                static_cast<float>(product / static_cast<double>(std::max<std::size_t>(n, 2) - 1)),
                                grad_x + at);
    });
}

void add_hardtanh_forward(Shape shape, const float* a, const float* b, float* out) {
    over_values(shape, [&](std::size_t at, std::size_t n) { add_hardtanh_run(n, a + at, b + at, out + at); });
}

void add_hardtanh_backward(Shape shape, const float* grad, const float* out, float* grad_in) {
    over_values(shape, [&](std::size_t at, std::size_t n) { hardtanh_grad_run(n, grad + at, out + at, grad_in + at); });
}

}  // namespace rbnn
