// The convolution of signs and the whole branch of a network, in training.
#include <nanobind/stl/tuple.h>

#include <tuple>
#include <type_traits>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/training.h"
#include "bindings/without_gil.h"
#include "simd/dispatch.h"
#include "training/branch.h"
#include "training/elementwise.h"
#include "training/sign_conv.h"

namespace rbnn {
namespace {

// The scales of filters: one for each, one for all, or 1.
struct Scales {
    std::vector<float> spread;
    const float* data;

    Scales(const Values<const float>& given, std::size_t filters) {
        const std::size_t count = given.is_valid() ? given.size() : 0;
        expect(!given.is_valid() || count == 1 || (given.ndim() == 1 && count == filters && given.stride(0) == 1),
                "expected one scale, or one per filter");
        if (count != filters) spread.assign(filters, count ? *given.data() : 1.0f);
        data = count == filters ? given.data() : spread.data();
    }
};

template <class X, class Signs>
SignConv sign_conv(const X& x, const Signs& signs, Pair stride, Pair padding, int threads) {
    channels_last(x, signs);
    const SignConv conv{x.shape(0),     x.shape(2),     x.shape(3),   x.shape(1),    signs.shape(0),
                        signs.shape(2), signs.shape(3), stride.first, stride.second, padding.first,
                        padding.second, threads,        find_kernels()};
    expect(signs.shape(1) == x.shape(1) && conv.supported(), "a convolution that has no kernel");
    return conv;
}

template <class Array>
void check_output(const SignConv& conv, const Array& out) {
    channels_last(out);
    expect(out.shape(0) == conv.images && out.shape(1) == conv.out_channels && out.shape(2) == conv.out_height() &&
                out.shape(3) == conv.out_width(),
            "the output has another shape");
}

template <class Planes>
auto words_of(const SignConv& conv, const Planes& planes) {
    expect(planes.size() == conv.images * conv.plane_words(), "planes have another size");
    using Word = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(planes.data())>>,
                                    const std::uint64_t, std::uint64_t>;
    return reinterpret_cast<Word*>(planes.data());
}

ImageSigns image_signs(const SignConv& conv, const PicturesIn& x, const Numbers<float>& mean,
                       const Numbers<float>& inverse_std) {
    expect(mean.size() == inverse_std.size() && (mean.size() == 0 || mean.size() == conv.images),
            "expected one number per image");
    return {{1, conv.in_values(), 1, conv.kernels}, x.data(), data_or_null(mean), data_or_null(inverse_std)};
}

// The functions of the module that have the names of their kernels.
namespace calls {

void sign_conv_forward(PicturesIn x, PicturesIn signs, Values<const float> scale, Pair stride, Pair padding,
                       PicturesOut out, Numbers<std::int64_t> planes, Numbers<float> mean, Numbers<float> inverse_std,
                       int threads) {
    const SignConv conv = sign_conv(x, signs, stride, padding, threads);
    check_output(conv, out);
    const Scales scales(scale, conv.out_channels);
    std::uint64_t* words = words_of(conv, planes);
    const ImageSigns of = image_signs(conv, x, mean, inverse_std);
    const WithoutGil released;
    const SignFilters filters(conv, signs.data(), scales.data);
    rbnn::sign_conv_forward(conv, filters, x.data(), [&](std::size_t i) { return of.level(i); }, words, out.data(), {});
}

void sign_conv_grad_input(PicturesIn grad, PicturesIn signs, Values<const float> scale, Pair stride, Pair padding,
                          PicturesIn x, Numbers<float> mean, Numbers<float> inverse_std,
                          Numbers<const double> tent, PicturesOut grad_x, int threads) {
    const SignConv conv = sign_conv(grad_x, signs, stride, padding, threads);
    check_output(conv, grad);
    same_shape(x, grad_x);
    const Scales scales(scale, conv.out_channels);
    const Tent slope = tent_of(tent);
    const ImageSigns of = image_signs(conv, x, mean, inverse_std);
    const WithoutGil released;
    const SignFilters filters(conv, signs.data(), scales.data);
    rbnn::sign_conv_grad_input(conv, filters, grad.data(), grad_x.data(),
                               [&](std::size_t i, float* image) { of.backward(i, slope, nullptr, image); });
}

void sign_conv_grad_weight(PicturesIn grad, Numbers<const std::int64_t> planes, Pair size, Pair stride, Pair padding,
                           PicturesOut grad_weight, int threads) {
    const SignConv conv{grad.shape(0),        size.first,           size.second,          grad_weight.shape(1),
                        grad_weight.shape(0), grad_weight.shape(2), grad_weight.shape(3), stride.first,
                        stride.second,        padding.first,        padding.second,       threads,
                        find_kernels()};
    expect(conv.supported(), "a convolution that has no kernel");
    channels_last(grad_weight);
    check_output(conv, grad);
    const std::uint64_t* words = words_of(conv, planes);
    const WithoutGil released;
    rbnn::sign_conv_grad_weight(conv, grad.data(), words, grad_weight.data());
}

// The arguments of all passes of a branch: x, signs, scale, stride, padding; weight, bias and eps of the norm; slope,
// before, after; shortcut, counts, planes, out, of_images.
using BranchTensors =
    std::tuple<PicturesIn, PicturesIn, Values<const float>, Pair, Pair, Numbers<const float>, Numbers<const float>,
               double, Numbers<const float>, Numbers<const float>, Numbers<const float>, PicturesIn,
               Pictures<std::int16_t>, Numbers<std::int64_t>, PicturesOut, Rows<float>>;

template <class... Arrays>
void expect_all(const Arrays&... arrays) {
    expect((arrays.is_valid() && ...), "expected arrays, got None");
}

// The same arguments, checked.
struct Branch {
    SignConv conv;
    Scales scales;
    Norm norm;
    BranchEnd end;
    BranchState state;

    static Branch of(const BranchTensors& given, int threads) {
        const auto& [x, signs, scale, stride, padding, weight, bias, eps, slope, before, after, shortcut, counts,
                     planes, out, of_images] = given;
        expect_all(x, signs, weight, bias, shortcut, counts, planes, out, of_images);
        const SignConv conv = sign_conv(x, signs, stride, padding, threads);
        check_output(conv, shortcut), check_output(conv, counts), check_output(conv, out);
        expect(conv.taps() * conv.in_channels <= kMostCounts, "a convolution that has no kernel");
        for (const auto* each : {&weight, &bias, &slope, &before, &after}) per_filter(conv, *each);
        const bool standardised = of_images.size() > 0;
        expect(!standardised || (of_images.shape(0) == 2 && of_images.shape(1) == conv.images),
                "expected two numbers per image");
        return {conv,
                {scale, conv.out_channels},
                {weight.data(), bias.data(), eps},
                {data_or_null(slope), data_or_null(before), data_or_null(after)},
                {x.data(), shortcut.data(), counts.data(), words_of(conv, planes), out.data(),
                 {data_or_null(of_images), standardised ? of_images.data() + conv.images : nullptr, nullptr, nullptr}}};
    }

    static void per_filter(const SignConv& conv, const Numbers<const float>& array) {
        expect(!array.is_valid() || array.size() == conv.out_channels, "expected one number per filter");
    }

    void keep_statistics(const Rows<double>& of_counts) {
        expect(of_counts.shape(0) == 2 && of_counts.shape(1) == conv.out_channels, "expected two numbers per filter");
        state.statistics.mean = of_counts.data(), state.statistics.variance = of_counts.data() + conv.out_channels;
    }
};

void branch_forward(const BranchTensors& tensors, Rows<double> of_counts, Numbers<const float> running_mean,
                    Numbers<const float> running_variance, int threads) {
    Branch branch = Branch::of(tensors, threads);
    if (of_counts.is_valid()) {
        branch.keep_statistics(of_counts);
    } else {
        expect_all(running_mean, running_variance);
        Branch::per_filter(branch.conv, running_mean), Branch::per_filter(branch.conv, running_variance);
        branch.norm.running_mean = running_mean.data(), branch.norm.running_variance = running_variance.data();
    }
    const WithoutGil released;
    rbnn::branch_forward(branch.conv, std::get<1>(tensors).data(), branch.scales.data, branch.norm, branch.end,
                         branch.state);
}

void branch_backward(PicturesIn grad, Numbers<const double> tent, PicturesOut grad_x, PicturesOut grad_shortcut,
                     PicturesOut grad_signs, Rows<float> grad_numbers, bool split, const BranchTensors& tensors,
                     Rows<double> of_counts, int threads) {
    Branch branch = Branch::of(tensors, threads);
    const PicturesIn &x = std::get<0>(tensors), &signs = std::get<1>(tensors);
    branch.keep_statistics(of_counts);
    check_output(branch.conv, grad);
    if (grad_shortcut.is_valid()) check_output(branch.conv, grad_shortcut);
    expect(grad_shortcut.is_valid() || x.size() == grad.size(), "x cannot be the shortcut");
    same_shape(x, grad_x), same_shape(signs, grad_signs);
    const std::size_t channels = branch.conv.out_channels;
    expect(grad_numbers.shape(0) == 5 && grad_numbers.shape(1) == channels, "expected five gradients per filter");
    const Tent slope = tent_of(tent);
    float* numbers = grad_numbers.data();
    const BranchGradients gradients{
        grad_x.data(),      data_or_null(grad_shortcut), grad_signs.data(),      split ? numbers : nullptr,
        numbers + channels, numbers + 2 * channels,      numbers + 3 * channels, numbers + 4 * channels};
    const WithoutGil released;
    rbnn::branch_backward(branch.conv, signs.data(), branch.scales.data, branch.norm, branch.end, branch.state, slope,
                          grad.data(), gradients);
}

}  // namespace calls
}  // namespace

void bind_sign_conv(nb::module_& m) {
    m.def("sign_conv_forward", &calls::sign_conv_forward, array("x"), array("signs"), maybe("scale"), "stride"_a,
          "padding"_a, array("out"), array("planes"), array("mean"), array("inverse_std"), "threads"_a,
          "Convolve the signs of x, standardised per image unless mean is empty, with signs; a scale per filter. "
          "planes keeps the signs for the gradient.");
    m.def("sign_conv_grad_input", &calls::sign_conv_grad_input, array("grad"), array("signs"), maybe("scale"),
          "stride"_a, "padding"_a, array("x"), array("mean"), array("inverse_std"), array("tent"), array("grad_x"),
          "threads"_a, "The gradient for x through the tent.");
    m.def("sign_conv_grad_weight", &calls::sign_conv_grad_weight, array("grad"), array("planes"), "size"_a, "stride"_a,
          "padding"_a, array("grad_weight"), "threads"_a, "The gradient for the weight.");
    m.def("branch_forward", &calls::branch_forward, maybe("branch"), maybe("of_counts"), maybe("running_mean"),
          maybe("running_variance"), "threads"_a,
          "Of a branch (x, signs, scale, stride, padding, weight, bias, eps, slope, before, after, shortcut, counts, "
          "planes, out, of_images), where scale, slope, before and after may be None: "
          "out = clamp(norm(scale (signs * sign(x))) + shortcut, -1, 1), or with slopes prelu(... + before) + after; "
          "the signs of x standardised unless of_images is empty. counts = signs * sign(x), of_counts is their mean "
          "and variance. With running statistics of the norm, in place of of_counts, counts and planes are scratch "
          "memory.");
    m.def("branch_backward", &calls::branch_backward, array("grad"), array("tent"), array("grad_x"),
          maybe("grad_shortcut"), array("grad_signs"), array("grad_numbers"), "split"_a, maybe("branch"),
          array("of_counts"), "threads"_a,
          "Gradients of branch_forward; grad_numbers has those of scale, weight, bias, slope and after. Not split, "
          "grad_signs is that of scale times signs. Without a grad_shortcut x is the shortcut.");
}

}  // namespace rbnn
