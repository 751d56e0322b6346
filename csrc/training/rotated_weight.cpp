#include "training/rotated_weight.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/threads.h"

namespace rbnn {
namespace {

constexpr std::size_t kGrain = 1 << 13;  // values; smaller parts cost more to distribute than to compute

// Rows of a matrix are padded with zeros to whole vectors.
std::size_t padded(std::size_t columns) { return (columns + 7) / 8 * 8; }

std::vector<float> pad(const float* matrix, std::size_t rows, std::size_t columns, bool transposed) {
    std::vector<float> out(rows * padded(columns), 0.0f);
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j)
            out[i * padded(columns) + j] = matrix[transposed ? j * rows + i : i * columns + j];
    return out;
}

// Computes Left · X · Right for the matrix X of a filter.
class Turn {
public:
    // Forward Rᵀw, backward R g.
    Turn(const Rotation& rotation, const Kernels& kernels, bool backward)
        : rows_(rotation.rows), columns_(rotation.columns), kernels_(kernels),
          left_(pad(rotation.r1, rows_, rows_, !backward)), right_(pad(rotation.r2, columns_, columns_, backward)),
          half_(rows_ * padded(columns_)), whole_(rows_ * padded(columns_)) {}

    // x and out are (rows, columns); out may be x.
    void operator()(const float* x, float* out) {
        kernels_.training.product(rows_, columns_, padded(columns_), x, columns_, right_.data(), half_.data());
        kernels_.training.product(rows_, rows_, padded(columns_), left_.data(), padded(rows_), half_.data(),
                                  whole_.data());
        for (std::size_t i = 0; i < rows_; ++i)
            std::copy_n(whole_.data() + i * padded(columns_), columns_, out + i * columns_);
    }

private:
    std::size_t rows_, columns_;
    const Kernels& kernels_;
    std::vector<float> left_, right_, half_, whole_;
};

template <class Body>
void over_filters(const Filters& filters, const Body& body) {
    parallel_for(filters.count, std::max<std::size_t>(kGrain / std::max<std::size_t>(filters.values, 1), 1),
                 filters.threads, body);
}

// Convert the values of one filter between the order in memory and that of the rotation.
void from_memory(const Filters& filters, const float* memory, float* values) {
    filters.kernels.transpose(memory, filters.taps, filters.values / filters.taps, values);
}
void to_memory(const Filters& filters, const float* values, float* memory) {
    filters.kernels.transpose(values, filters.values / filters.taps, filters.taps, memory);
}

// Mean and 1/std of a filter.
void statistics(const Filters& filters, const float* w, float* mean, float* inverse_std) {
    const std::size_t n = filters.values;
    *mean = static_cast<float>(filters.kernels.sum(w, n) / static_cast<double>(n));
    const double variance = filters.kernels.training.squares(n, w, *mean) / static_cast<double>(n - 1);
    float largest = 0.0f;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(w[i]));
    // A constant filter leaves rounding noise of the order of eps·|mean|, which standardisation would turn into signs.
    const double noise = 4.0 * std::numeric_limits<float>::epsilon() * largest;
    *inverse_std = variance <= noise * noise ? 0.0f : static_cast<float>(1.0 / std::sqrt(variance));  // NaN stays NaN
}

}  // namespace

float Rotation::alpha(std::size_t filter) const {
    return beta == nullptr ? 1.0f : std::fabs(std::sin(beta[betas == 1 ? 0 : filter]));
}

void rotated_weight(const Filters& filters, const Rotation& rotation, float* mixed, float* turned, float* mean,
                    float* inverse_std) {
    const std::size_t n = filters.values, moved = rotation.rows * rotation.columns;
    const TrainingKernels& kernels = filters.kernels.training;
    over_filters(filters, [&](std::size_t begin, std::size_t end) {
        std::vector<float> standard(n);
        std::vector<Turn> turn;
        if (rotation.r1) turn.emplace_back(rotation, filters.kernels, false);
        for (std::size_t f = begin; f < end; ++f) {
            const float* w = filters.weight + f * n;
            statistics(filters, w, mean + f, inverse_std + f);
            if (turn.empty()) {
                kernels.standardise(n, w, mean[f], inverse_std[f], mixed + f * n);
                continue;
            }
            float* to = turned + f * n;
            from_memory(filters, w, to);
            kernels.standardise(n, to, mean[f], inverse_std[f], standard.data());
            turn[0](standard.data(), to);
            std::copy(standard.begin() + static_cast<std::ptrdiff_t>(moved), standard.end(), to + moved);
            kernels.mix(n, standard.data(), to, rotation.alpha(f), standard.data());
            to_memory(filters, standard.data(), mixed + f * n);
        }
    });
}

void rotated_weight_backward(const Filters& filters, const Rotation& rotation, const float* grad, const float* turned,
                             const float* mean, const float* inverse_std, float* grad_weight, float* grad_beta) {
    const std::size_t n = filters.values;
    const TrainingKernels& kernels = filters.kernels.training;
    over_filters(filters, [&](std::size_t begin, std::size_t end) {
        std::vector<float> standard(n), given(n), through(n), total(n);
        std::vector<Turn> turn;
        if (rotation.r1) turn.emplace_back(rotation, filters.kernels, true);
        for (std::size_t f = begin; f < end; ++f) {
            const float *w = filters.weight + f * n, *g = grad + f * n;
            float* out = grad_weight + f * n;
            kernels.standardise(n, w, mean[f], inverse_std[f], standard.data());
            if (turn.empty()) {
                std::copy_n(g, n, out);
                if (grad_beta) grad_beta[f] = 0.0f;  // without a rotation, beta changes nothing
            } else {
                // In the order of the rotation: α g rotated back, and (1 − α) g.
                const float alpha = rotation.alpha(f);
                from_memory(filters, g, given.data());
                from_memory(filters, standard.data(), total.data());
                const double slope =
                    kernels.mix_backward(n, given.data(), total.data(), turned + f * n, alpha, through.data());
                if (grad_beta) {
                    const double beta = rotation.beta[rotation.betas == 1 ? 0 : f], sine = std::sin(beta);
                    grad_beta[f] = static_cast<float>(slope * std::cos(beta) * ((sine > 0.0) - (sine < 0.0)));
                }
                if (rotation.in_gradient)
                    turn[0](through.data(), through.data());
                else
                    std::fill(through.begin(), through.end(), 0.0f);
                for (std::size_t i = 0; i < n; ++i) total[i] = through[i] + (1.0f - alpha) * given[i];
                to_memory(filters, total.data(), out);
            }
            // dw = (g − Σg/n − ŵ·Σ(g ŵ)/(n − 1)) / std
            const double sum = filters.kernels.sum(out, n), product = kernels.dot(n, out, standard.data());
            kernels.standardised_finish(n, w, mean[f], inverse_std[f], static_cast<float>(sum / static_cast<double>(n)),
                                        static_cast<float>(product / static_cast<double>(n - 1)), nullptr, out);
        }
    });
}

}  // namespace rbnn
