#include "training/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/threads.h"
#include "simd/vectors.h"

namespace rbnn {
namespace {

constexpr std::size_t kRows = 256;  // of a part: its sums are floats, those of all parts double

// Sums of one part, of 8·kVectors channels from `c` on, relative to `pivot`: where values lie far from 0 compared with their
// spread, the sum of their squares would lose it.
template <int kVectors>
RBNN_INLINE_ALWAYS void sum_part(std::size_t rows, std::size_t channels, const float* y, const float* pivot, double* sum,
                                 double* square) {
    Floats total[kVectors] = {}, squares[kVectors] = {}, zero[kVectors];
    for (int v = 0; v < kVectors; ++v) zero[v] = load(pivot + v * kLanes);
    for (std::size_t row = 0; row < rows; ++row, y += channels)
        for (int v = 0; v < kVectors; ++v) {
            const Floats value = load(y + v * kLanes) - zero[v];
            total[v] += value;
            squares[v] += value * value;
        }
    for (std::size_t c = 0; c < kVectors * kLanes; ++c)
        sum[c] = total[c / kLanes][c % kLanes], square[c] = squares[c / kLanes][c % kLanes];
}

RBNN_CLONES void sum_parts(std::size_t rows, std::size_t channels, const float* y, const float* pivot, double* sum,
                           double* square) {
    std::size_t c = 0;
    for (; c + 2 * kLanes <= channels; c += 2 * kLanes) sum_part<2>(rows, channels, y + c, pivot + c, sum + c, square + c);
    if (c < channels) sum_part<1>(rows, channels, y + c, pivot + c, sum + c, square + c);
}

template <int kVectors>
RBNN_INLINE_ALWAYS void backward_part(std::size_t rows, std::size_t channels, const float* grad, const float* out,
                                      const float* y, const float* mean, float* grad_sum, double* sum, double* product) {
    Floats total[kVectors] = {}, products[kVectors] = {}, zero[kVectors];
    for (int v = 0; v < kVectors; ++v) zero[v] = load(mean + v * kLanes);
    for (std::size_t row = 0; row < rows; ++row, grad += channels, out += channels, y += channels, grad_sum += channels)
        for (int v = 0; v < kVectors; ++v) {
            const Floats at = load(out + v * kLanes);
            const Floats value = ((at > -1.0f) & (at < 1.0f)) ? load(grad + v * kLanes) : Floats{};
            store(grad_sum + v * kLanes, value);
            total[v] += value;
            products[v] += value * (load(y + v * kLanes) - zero[v]);
        }
    for (std::size_t c = 0; c < kVectors * kLanes; ++c)
        sum[c] = total[c / kLanes][c % kLanes], product[c] = products[c / kLanes][c % kLanes];
}

RBNN_CLONES void backward_parts(std::size_t rows, std::size_t channels, const float* grad, const float* out, const float* y,
                                const float* mean, float* grad_sum, double* sum, double* product) {
    std::size_t c = 0;
    for (; c + 2 * kLanes <= channels; c += 2 * kLanes)
        backward_part<2>(rows, channels, grad + c, out + c, y + c, mean + c, grad_sum + c, sum + c, product + c);
    if (c < channels)
        backward_part<1>(rows, channels, grad + c, out + c, y + c, mean + c, grad_sum + c, sum + c, product + c);
}

RBNN_CLONES void forward_rows(std::size_t rows, std::size_t channels, const float* y, const float* scale, const float* shift,
                              const float* shortcut, float* out) {
    for (std::size_t row = 0; row < rows; ++row, y += channels, shortcut += channels, out += channels)
        for (std::size_t c = 0; c < channels; c += kLanes) {
            const Floats sum = load(y + c) * load(scale + c) + load(shift + c) + load(shortcut + c);
            // Written so that NaN stays NaN: a loss that is not finite must be seen.
            const Floats one = Floats{} + 1.0f, above = sum > one ? one : sum;
            store(out + c, above < -one ? -one : above);
        }
}

RBNN_CLONES void grad_rows(std::size_t rows, std::size_t channels, const float* grad_sum, const float* y, const float* mean,
                           const float* factor, const float* pull, const float* shift, float* grad_y) {
    for (std::size_t row = 0; row < rows; ++row, grad_sum += channels, y += channels, grad_y += channels)
        for (std::size_t c = 0; c < channels; c += kLanes)
            store(grad_y + c, load(factor + c) * load(grad_sum + c) + load(pull + c) * (load(y + c) - load(mean + c)) +
                                  load(shift + c));
}

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

}  // namespace

void batch_statistics(Pixels shape, const float* y, double* mean, double* variance) {
    over_parts(shape, mean, variance, [&](std::size_t first, std::size_t rows, double* sum, double* square) {
        sum_parts(rows, shape.channels, y + first * shape.channels, y, sum, square);
    });
    for (std::size_t c = 0; c < shape.channels; ++c) {
        const double n = static_cast<double>(shape.rows), from_pivot = mean[c] / n;
        // Not max(…, 0): NaN must stay NaN.
        const double spread = variance[c] / n - from_pivot * from_pivot;
        variance[c] = spread < 0.0 ? 0.0 : spread;
        mean[c] = y[c] + from_pivot;
    }
}

void norm_add_hardtanh(Pixels shape, const float* y, const float* scale, const float* shift, const float* shortcut,
                       float* out) {
    over_rows(shape, [&](std::size_t at, std::size_t rows) {
        forward_rows(rows, shape.channels, y + at, scale, shift, shortcut + at, out + at);
    });
}

void norm_add_hardtanh_backward(Pixels shape, const float* grad, const float* out, const float* y, const float* mean,
                                float* grad_sum, double* sum, double* product) {
    over_parts(shape, sum, product, [&](std::size_t first, std::size_t rows, double* part_sum, double* part_product) {
        const std::size_t at = first * shape.channels;
        backward_parts(rows, shape.channels, grad + at, out + at, y + at, mean, grad_sum + at, part_sum, part_product);
    });
}

void norm_backward(Pixels shape, const float* grad_sum, const float* y, const float* mean, const float* factor,
                   const float* pull, const float* shift, float* grad_y) {
    over_rows(shape, [&](std::size_t at, std::size_t rows) {
        grad_rows(rows, shape.channels, grad_sum + at, y + at, mean, factor, pull, shift, grad_y + at);
    });
}

}  // namespace rbnn
