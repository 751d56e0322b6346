// Compare training's convolution of signs on each instruction set with the portable kernels on random shapes: signs and
// sums bit for bit, gradients up to rounding.  The argument is the number of shapes.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "random_values.h"
#include "simd/dispatch.h"
#include "training/branch.h"

using namespace rbnn;

namespace {

SignConv any_shape(const Kernels& kernels) {
    for (;;) {
        SignConv conv{any(1, 5), any(1, 12), any(1, 40), 8 * any(1, 9), 8 * any(1, 9), any(1, 5),
                      any(1, 5), any(1, 3),  any(1, 3),  any(0, 4),     any(0, 4),     static_cast<int>(any(1, 3)),
                      kernels};
        if (conv.supported()) return conv;
    }
}

struct Results {
    std::vector<float> out, grad_a, grad_weight;
    std::vector<std::uint64_t> planes;
};

Results run(const SignConv& conv, const SignFilters& filters, const std::vector<float>& x,
            const std::vector<float>& grad) {
    Results found{std::vector<float>(conv.images * conv.out_values()),
                  std::vector<float>(conv.images * conv.in_values()),
                  std::vector<float>(conv.out_channels * conv.taps() * conv.in_channels),
                  std::vector<std::uint64_t>(conv.images * conv.plane_words())};
    const auto level = [](std::size_t image) { return 0.1f * static_cast<float>(image); };
    sign_conv_forward(conv, filters, x.data(), level, found.planes.data(), found.out.data(), {});
    sign_conv_grad_input(conv, filters, grad.data(), found.grad_a.data(), {});
    sign_conv_grad_weight(conv, grad.data(), found.planes.data(), found.grad_weight.data());
    return found;
}

struct BranchResults {
    std::vector<std::int16_t> counts;
    std::vector<float> out, grad_x, grad_weight;
};

// A whole branch and its gradients, with slopes or with hardtanh.
BranchResults run_branch(const SignConv& conv, const std::vector<float>& signs, const std::vector<float>& x,
                         const std::vector<float>& grad, bool slopes) {
    const std::size_t n = conv.out_channels, values = conv.images * conv.out_values();
    const std::vector<float> ones(n, 1.0f), quarter(n, 0.25f), zeros(n, 0.0f), shortcut(values, 0.125f);
    BranchResults found{std::vector<std::int16_t>(values), std::vector<float>(values), std::vector<float>(x.size()),
                        std::vector<float>(signs.size())};
    std::vector<std::uint64_t> planes(conv.images * conv.plane_words());
    std::vector<float> image_mean(conv.images), image_std(conv.images), numbers(5 * n), grad_shortcut(values);
    std::vector<double> mean(n), variance(n);
    const BranchState state{x.data(), shortcut.data(), found.counts.data(), planes.data(), found.out.data(),
                            {image_mean.data(), image_std.data(), mean.data(), variance.data()}};
    const BranchEnd end{slopes ? quarter.data() : nullptr, nullptr, nullptr};
    const Norm norm{ones.data(), zeros.data(), 1e-5};
    branch_forward(conv, signs.data(), ones.data(), norm, end, state);
    float* of = numbers.data();
    branch_backward(conv, signs.data(), ones.data(), norm, end, state, {1.0f, 0.5f, 1.5f, slopes ? 0.5f : 0.0f},
                    grad.data(),
                    {found.grad_x.data(), grad_shortcut.data(), found.grad_weight.data(), of, of + n, of + 2 * n,
                     of + 3 * n, of + 4 * n});
    return found;
}

void refuse(const char* what, const SignConv& conv) {
    std::printf(
        "%s: %s differs: images %zu, %zu x %zu, channels %zu to %zu, kernel %zu x %zu, stride %zu %zu, "
        "padding %zu %zu\n",
        conv.kernels.name, what, conv.images, conv.height, conv.width, conv.in_channels, conv.out_channels,
        conv.kernel_y, conv.kernel_x, conv.stride_y, conv.stride_x, conv.padding_y, conv.padding_x);
    std::exit(1);
}

template <class Value>
bool same(const std::vector<Value>& a, const std::vector<Value>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(Value)) == 0;
}

bool close(const std::vector<float>& a, const std::vector<float>& b, float tolerance = 2e-5f) {
    float largest = 0;
    for (const float value : a) largest = std::fmax(largest, std::fabs(value));
    for (std::size_t i = 0; i < a.size(); ++i)
        if (!(std::fabs(a[i] - b[i]) <= tolerance * largest + 1e-9f)) return false;
    return true;
}

}  // namespace

int main(int, char** arguments) {
    const int shapes = std::atoi(arguments[1]);
    int comparisons = 0;
    for (int i = 0; i < shapes; ++i) {
        const SignConv conv = any_shape(kernels_portable);
        const std::vector<float> signs = floats(conv.out_channels * conv.taps() * conv.in_channels);
        const SignFilters filters(conv, signs.data(), floats(conv.out_channels).data());
        const std::vector<float> x = floats(conv.images * conv.in_values()),
                                 grad = floats(conv.images * conv.out_values());
        const Results plain = run(conv, filters, x, grad);
        for (const Kernels* kernels : all_kernels()) {
            if (kernels == &kernels_portable || !kernels->supported()) continue;
            const SignConv other{conv.images,     conv.height,    conv.width,     conv.in_channels, conv.out_channels,
                                 conv.kernel_y,   conv.kernel_x,  conv.stride_y,  conv.stride_x,    conv.padding_y,
                                 conv.padding_x,  conv.threads,   *kernels};
            const Results found = run(other, filters, x, grad);
            if (!same(plain.planes, found.planes)) refuse("signs", other);
            if (!same(plain.out, found.out)) refuse("the output", other);
            if (!close(plain.grad_a, found.grad_a)) refuse("the input's gradient", other);
            if (!close(plain.grad_weight, found.grad_weight)) refuse("the weight's gradient", other);
            comparisons += 4;
            const bool slopes = i % 2 == 1;
            const BranchResults one = run_branch(conv, signs, x, grad, slopes),
                                two = run_branch(other, signs, x, grad, slopes);
            if (!same(one.counts, two.counts)) refuse("the counts of a branch", other);
            if (!close(one.out, two.out)) refuse("the output of a branch", other);
            comparisons += 2;
            // With few values the gradient after the norm is mostly rounding error.
            if (conv.images * conv.out_height() * conv.out_width() < 64) continue;
            if (!close(one.grad_x, two.grad_x, 1e-3f)) refuse("the input's gradient of a branch", other);
            if (!close(one.grad_weight, two.grad_weight, 1e-3f)) refuse("the weight's gradient of a branch", other);
            comparisons += 2;
        }
    }
    for (const Kernels* kernels : all_kernels())
        if (kernels->supported()) std::printf("%s ", kernels->name);
    std::printf("%d comparisons\n", comparisons);
}
