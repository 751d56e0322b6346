#include "training/branch.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/threads.h"
#include "training/batch_norm.h"
#include "training/weight_gradient.h"

namespace rbnn {
namespace {

constexpr std::size_t kFewSlabs = 2;

Pixels pixels(const SignConv& conv) {
    return {conv.images * conv.out_height() * conv.out_width(), conv.out_channels, conv.threads, conv.kernels};
}

ImageSigns image_signs(const SignConv& conv, const BranchState& state) {
    const BranchStatistics& of = state.statistics;
    return {{1, conv.in_values(), 1, conv.kernels}, state.x, of.image_mean, of.image_inverse_std};
}

// norm(y) + before = y·factor + shift
struct Affine {
    std::vector<float> factor, shift;
};

double inverse_std(double scale, double variance, double eps) {
    return 1.0 / std::sqrt(scale * scale * variance + eps);
}

Affine normalising(const SignConv& conv, const float* scale, const Norm& norm, const BranchEnd& end,
                   const BranchStatistics& of) {
    Affine made{std::vector<float>(conv.out_channels), std::vector<float>(conv.out_channels)};
    for (std::size_t c = 0; c < conv.out_channels; ++c) {
        const double mean = norm.running_mean ? norm.running_mean[c] : scale[c] * of.mean[c];
        const double inverse = norm.running_mean ? inverse_std(1.0, norm.running_variance[c], norm.eps)
                                                 : inverse_std(scale[c], of.variance[c], norm.eps);
        const double slope = norm.weight[c] * inverse, before = end.before ? end.before[c] : 0.0;
        made.factor[c] = static_cast<float>(slope * scale[c]);
        made.shift[c] = static_cast<float>(norm.bias[c] - mean * slope + before);
    }
    return made;
}

// Mean and variance of the counts, from the sum and the sum of squares of each image and channel.
void average(const SignConv& conv, const std::vector<std::int64_t>& sums, const BranchStatistics& statistics) {
    const std::size_t channels = conv.out_channels;
    const double n = static_cast<double>(pixels(conv).rows);
    for (std::size_t c = 0; c < channels; ++c) {
        std::int64_t sum = 0, square = 0;
        for (std::size_t i = 0; i < conv.images; ++i)
            sum += sums[i * 2 * channels + c], square += sums[(i * 2 + 1) * channels + c];
        const double mean = static_cast<double>(sum) / n, spread = static_cast<double>(square) / n - mean * mean;
        statistics.mean[c] = mean, statistics.variance[c] = spread > 0.0 ? spread : 0.0;
    }
}

// Turns grad_weight, the gradient of scale · signs, into that of the signs.  grad_scale has one number per filter.
void split_gradient(const SignConv& conv, const float* signs, const float* scale, float* grad_weight,
                    float* grad_scale) {
    const std::size_t n = conv.taps() * conv.in_channels;
    for (std::size_t o = 0; o < conv.out_channels; ++o) {
        float* of_filter = grad_weight + o * n;
        grad_scale[o] = static_cast<float>(conv.kernels.training.dot(n, of_filter, signs + o * n));
        for (std::size_t i = 0; i < n; ++i) of_filter[i] *= scale[o];
    }
}

}  // namespace

void branch_forward(const SignConv& conv, const float* signs, const float* scale, const Norm& norm,
                    const BranchEnd& end, const BranchState& state) {
    const std::vector<float> ones(conv.out_channels, 1.0f);
    const SignFilters filters(conv, signs, ones.data());
    const BranchStatistics& statistics = state.statistics;
    const ImageSigns of = image_signs(conv, state);
    const auto level = [&](std::size_t i) { return of.level(i); };
    const std::size_t channels = conv.out_channels, positions = conv.out_height() * conv.out_width();
    std::vector<std::int64_t> sums(conv.images * 2 * channels);
    sign_conv_forward(conv, filters, state.x, level, state.planes, nullptr, [&](std::size_t i, const float* y) {
        std::int64_t* sum = sums.data() + i * 2 * channels;
        conv.kernels.training.counts.rows(positions, channels, conv.taps() * conv.in_channels, y,
                                          state.counts + i * conv.out_values(), sum, sum + channels);
    });
    if (!norm.running_mean) average(conv, sums, statistics);
    const Affine affine = normalising(conv, scale, norm, end, statistics);
    const float *factor = affine.factor.data(), *shift = affine.shift.data();
    if (end.slope) {
        const std::vector<float> zeros(end.after ? 0 : channels, 0.0f);
        const float* after = end.after ? end.after : zeros.data();
        counts_prelu(pixels(conv), state.counts, factor, shift, state.shortcut, end.slope, after, state.out);
    } else {
        counts_hardtanh(pixels(conv), state.counts, factor, shift, state.shortcut, state.out);
    }
}

void branch_backward(const SignConv& conv, const float* signs, const float* scale, const Norm& norm,
                     const BranchEnd& end, const BranchState& state, Tent tent, const float* grad,
                     const BranchGradients& gradients) {
    const std::size_t channels = conv.out_channels, values = conv.out_values();
    const BranchStatistics& statistics = state.statistics;
    const std::vector<float> mean(statistics.mean, statistics.mean + channels), flat(channels, 0.0f);
    std::vector<double> sum(channels), product(channels);
    if (end.slope) {
        const Affine affine = normalising(conv, scale, norm, end, statistics);
        std::vector<double> slope(channels), after(channels);
        counts_prelu_sums(pixels(conv), grad, state.counts, mean.data(), affine.factor.data(), affine.shift.data(),
                          state.shortcut, end.slope, sum.data(), product.data(), slope.data(), after.data());
        std::copy(slope.begin(), slope.end(), gradients.slope), std::copy(after.begin(), after.end(), gradients.after);
    } else {
        counts_hardtanh_sums(pixels(conv), grad, state.counts, mean.data(), sum.data(), product.data());
    }
    // With g the gradient of the sum, s = 1/std, y = scale·count:
    //   dy = γ s (g − Σg/n − (y − mean) s² Σ(g (y − mean))/n)
    const double n = static_cast<double>(pixels(conv).rows);
    std::vector<float> factor(channels), pull(channels), shift(channels);
    for (std::size_t c = 0; c < channels; ++c) {
        const double own = scale[c], s = inverse_std(own, statistics.variance[c], norm.eps), slope = norm.weight[c] * s;
        gradients.norm_weight[c] = static_cast<float>(own * product[c] * s);
        gradients.norm_bias[c] = static_cast<float>(sum[c]);
        factor[c] = static_cast<float>(slope), shift[c] = static_cast<float>(-slope * sum[c] / n);
        pull[c] = static_cast<float>(-slope * s * s * own * own * product[c] / n);
    }
    const SignFilters filters(conv, signs, scale);
    const ImageSigns of = image_signs(conv, state);
    const auto make_gradient = image_gradients(conv, filters);
    WeightGradient weight(conv);
    // The gradients of an image before and after its norm stay in the cache from the first use to the last.  A weight
    // with many slabs has few parts, and many threads want more of them.  In these cases all threads first process the
    // images, and then the slabs.  The sums are the same.
    const bool at_once = weight.slabs() <= kFewSlabs && static_cast<std::size_t>(conv.threads) <= weight.parts();
    const std::unique_ptr<float[]> kept(at_once ? nullptr : new float[conv.images * values]);
    struct Scratch {
        ImageGradient gradient;
        std::unique_ptr<float[]> grad_y, grad_sum;
    };
    const auto make_scratch = [&] {
        const auto room = [&](bool needed) { return std::unique_ptr<float[]>(needed ? new float[values] : nullptr); };
        return Scratch{make_gradient(), room(at_once), room(!gradients.shortcut)};
    };
    // Writes all gradients of an image except the weight's, and returns the one that the weight's is computed from.
    const auto pass = [&](std::size_t i, const Scratch& own) {
        float* grad_y = own.grad_y ? own.grad_y.get() : kept.get() + i * values;
        float* grad_sum = own.grad_sum ? own.grad_sum.get() : gradients.shortcut + i * values;
        float* grad_x = gradients.x + i * conv.in_values();
        conv.kernels.training.counts.grad(values / channels, channels, grad + i * values, state.counts + i * values,
                                          end.slope ? end.slope : flat.data(), mean.data(), factor.data(), pull.data(),
                                          shift.data(), grad_sum, grad_y);
        own.gradient(grad_y, grad_x);
        of.backward(i, tent, own.grad_sum.get(), grad_x);
        return grad_y;
    };
    if (at_once) {
        parallel_for(weight.parts(), 1, conv.threads, [&](std::size_t begin, std::size_t last) {
            const Scratch own = make_scratch();
            for (std::size_t part = begin; part < last; ++part)
                for (std::size_t i = weight.first_image(part); i < weight.first_image(part + 1); ++i) {
                    const float* grad_y = pass(i, own);
                    for (std::size_t slab = 0; slab < weight.slabs(); ++slab)
                        weight.add(slab, part, grad_y, state.planes + i * conv.plane_words());
                }
        });
    } else {
        parallel_for(conv.images, 1, conv.threads, [&](std::size_t begin, std::size_t last) {
            const Scratch own = make_scratch();
            for (std::size_t i = begin; i < last; ++i) pass(i, own);
        });
        weight.add_images(kept.get(), state.planes);
    }
    weight.write(gradients.weight);
    if (gradients.scale) split_gradient(conv, signs, scale, gradients.weight, gradients.scale);
}

}  // namespace rbnn
