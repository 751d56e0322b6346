#include "training/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "base/threads.h"

namespace rbnn {
namespace {

constexpr std::size_t kRows = 256;  // rows of a part; the sums of a part are floats, those of all parts are double

// Calls part(first row, rows, sums) for parts of kRows rows and adds the results: one number per channel for each of
// `totals`.
template <class Part>
void over_parts(Pixels shape, std::initializer_list<double*> totals, const Part& part) {
    const std::size_t parts = (shape.rows + kRows - 1) / kRows, channels = shape.channels, count = totals.size();
    std::vector<double> sums(parts * count * channels);
    parallel_for(parts, 16, shape.threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i)
            part(i * kRows, std::min(kRows, shape.rows - i * kRows), sums.data() + i * count * channels);
    });
    std::size_t k = 0;
    for (double* total : totals) {
        std::fill(total, total + channels, 0.0);
        for (std::size_t i = 0; i < parts; ++i)
            for (std::size_t c = 0; c < channels; ++c) total[c] += sums[(i * count + k) * channels + c];
        ++k;
    }
}

template <class Body>
void over_rows(Pixels shape, const Body& body) {
    parallel_for(shape.rows, 1024, shape.threads,
                 [&](std::size_t begin, std::size_t end) { body(begin * shape.channels, end - begin); });
}

}  // namespace

void batch_statistics(Pixels shape, const float* y, double* mean, double* variance) {
    over_parts(shape, {mean, variance}, [&](std::size_t first, std::size_t rows, double* sums) {
        shape.kernels.training.sum_rows(rows, shape.channels, y + first * shape.channels, y, sums,
                                        sums + shape.channels);
    });
    for (std::size_t c = 0; c < shape.channels; ++c) {
        const double n = static_cast<double>(shape.rows), from_pivot = mean[c] / n;
        // Not max(…, 0), because NaN must stay NaN.
        const double spread = variance[c] / n - from_pivot * from_pivot;
        variance[c] = spread < 0.0 ? 0.0 : spread;
        mean[c] = y[c] + from_pivot;
    }
}

void norm_add_hardtanh(Pixels shape, const float* y, const float* scale, const float* shift, const float* shortcut,
                       float* out) {
    over_rows(shape, [&](std::size_t at, std::size_t rows) {
        shape.kernels.training.norm.add_hardtanh(rows, shape.channels, y + at, scale, shift, shortcut + at, out + at);
    });
}

void norm_add_hardtanh_backward(Pixels shape, const float* grad, const float* out, const float* y, const float* mean,
                                float* grad_sum, double* sum, double* product) {
    over_parts(shape, {sum, product}, [&](std::size_t first, std::size_t rows, double* sums) {
        const std::size_t at = first * shape.channels;
        shape.kernels.training.norm.add_hardtanh_grad(rows, shape.channels, grad + at, out + at, y + at, mean,
                                                      grad_sum + at, sums, sums + shape.channels);
    });
}

void counts_hardtanh(Pixels shape, std::int16_t* counts, const float* scale, const float* shift, const float* shortcut,
                     float* out) {
    over_rows(shape, [&](std::size_t at, std::size_t rows) {
        shape.kernels.training.counts.hardtanh(rows, shape.channels, counts + at, scale, shift, shortcut + at,
                                               out + at);
    });
}

void counts_prelu(Pixels shape, std::int16_t* counts, const float* scale, const float* shift, const float* shortcut,
                  const float* slope, const float* after, float* out) {
    over_rows(shape, [&](std::size_t at, std::size_t rows) {
        shape.kernels.training.counts.prelu(rows, shape.channels, counts + at, scale, shift, shortcut + at, slope,
                                            after, out + at);
    });
}

void counts_hardtanh_sums(Pixels shape, const float* grad, const std::int16_t* counts, const float* mean, double* sum,
                          double* product) {
    over_parts(shape, {sum, product}, [&](std::size_t first, std::size_t rows, double* sums) {
        const std::size_t at = first * shape.channels;
        shape.kernels.training.counts.hardtanh_sums(rows, shape.channels, grad + at, counts + at, mean, sums);
    });
}

void counts_prelu_sums(Pixels shape, const float* grad, const std::int16_t* counts, const float* mean,
                       const float* scale, const float* shift, const float* shortcut, const float* slope, double* sum,
                       double* product, double* grad_slope, double* grad_after) {
    over_parts(shape, {sum, product, grad_slope, grad_after}, [&](std::size_t first, std::size_t rows, double* sums) {
        const std::size_t at = first * shape.channels;
        shape.kernels.training.counts.prelu_sums(rows, shape.channels, grad + at, counts + at, mean, scale, shift,
                                                 shortcut + at, slope, sums);
    });
}

void norm_backward(Pixels shape, const float* grad_sum, const float* y, const float* mean, const float* factor,
                   const float* pull, const float* shift, float* grad_y) {
    over_rows(shape, [&](std::size_t at, std::size_t rows) {
        shape.kernels.training.norm.grad(rows, shape.channels, grad_sum + at, y + at, mean, factor, pull, shift,
                                         grad_y + at);
    });
}

}  // namespace rbnn
