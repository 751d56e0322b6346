#include "training/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

#include "base/threads.h"

namespace rbnn {
namespace {

constexpr std::size_t kRows = 256;  // of a part: its sums are floats, those of all parts double

// Calls part(first row, rows, sums, other sums) for parts of kRows rows and adds their two sums per channel up.
void over_parts(Pixels shape, double* sum, double* other,
                const std::function<void(std::size_t, std::size_t, double*, double*)>& part) {
    const std::size_t parts = (shape.rows + kRows - 1) / kRows, channels = shape.channels;
    std::vector<double> sums(parts * 2 * channels);
    parallel_for(parts, 16, shape.threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            double* at = sums.data() + i * 2 * channels;
            part(i * kRows, std::min(kRows, shape.rows - i * kRows), at, at + channels);
        }
    });
    std::fill(sum, sum + channels, 0.0), std::fill(other, other + channels, 0.0);
    for (std::size_t i = 0; i < parts; ++i)
        for (std::size_t c = 0; c < channels; ++c)
            sum[c] += sums[i * 2 * channels + c], other[c] += sums[(i * 2 + 1) * channels + c];
}

template <class Body>
void over_rows(Pixels shape, const Body& body) {
    parallel_for(shape.rows, 1024, shape.threads,
                 [&](std::size_t begin, std::size_t end) { body(begin * shape.channels, end - begin); });
}

template <class Y>
const NormKernels<Y>& norm_kernels(const Kernels& kernels) {
    if constexpr (std::is_same_v<Y, float>)
        return kernels.training.norm;
    else
        return kernels.training.norm_counts;
}

}  // namespace

void batch_statistics(Pixels shape, const float* y, double* mean, double* variance) {
    over_parts(shape, mean, variance, [&](std::size_t first, std::size_t rows, double* sum, double* square) {
        shape.kernels.training.sum_rows(rows, shape.channels, y + first * shape.channels, y, sum, square);
    });
    for (std::size_t c = 0; c < shape.channels; ++c) {
        const double n = static_cast<double>(shape.rows), from_pivot = mean[c] / n;
        // Not max(…, 0): NaN must stay NaN.
        const double spread = variance[c] / n - from_pivot * from_pivot;
        variance[c] = spread < 0.0 ? 0.0 : spread;
        mean[c] = y[c] + from_pivot;
    }
}

template <class Y>
void norm_add_hardtanh(Pixels shape, const Y* y, const float* scale, const float* shift, const float* shortcut, float* out) {
    over_rows(shape, [&](std::size_t at, std::size_t rows) {
        norm_kernels<Y>(shape.kernels).add_hardtanh(rows, shape.channels, y + at, scale, shift, shortcut + at, out + at);
    });
}

template <class Y>
void norm_add_hardtanh_backward(Pixels shape, const float* grad, const float* out, const Y* y, const float* mean,
                                float* grad_sum, double* sum, double* product) {
    over_parts(shape, sum, product, [&](std::size_t first, std::size_t rows, double* part_sum, double* part_product) {
        const std::size_t at = first * shape.channels;
        norm_kernels<Y>(shape.kernels)
            .add_hardtanh_grad(rows, shape.channels, grad + at, out + at, y + at, mean, grad_sum + at, part_sum, part_product);
    });
}

template void norm_add_hardtanh(Pixels, const float*, const float*, const float*, const float*, float*);
template void norm_add_hardtanh(Pixels, const std::int16_t*, const float*, const float*, const float*, float*);
template void norm_add_hardtanh_backward(Pixels, const float*, const float*, const float*, const float*, float*, double*, double*);
template void norm_add_hardtanh_backward(Pixels, const float*, const float*, const std::int16_t*, const float*, float*, double*,
                                         double*);

void norm_backward(Pixels shape, const float* grad_sum, const float* y, const float* mean, const float* factor,
                   const float* pull, const float* shift, float* grad_y) {
    over_rows(shape, [&](std::size_t at, std::size_t rows) {
        shape.kernels.training.norm.grad(rows, shape.channels, grad_sum + at, y + at, mean, factor, pull, shift, grad_y + at);
    });
}

}  // namespace rbnn
