// The training kernels in the module rbnn._core.  Tensors are as in torch: images are (images, channels, height,
// width) with the channels last in memory, and missing arguments are None.  Arrays are checked here; the code below
// trusts pointers.
#include "bindings/training.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/freed_memory.h"
#include "bindings/without_gil.h"
#include "simd/dispatch.h"
#include "training/batch_norm.h"
#include "training/branch.h"
#include "training/elementwise.h"
#include "training/rotated_weight.h"
#include "training/sign_conv.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rbnn {
namespace {

template <class T>
using Values = nb::ndarray<T, nb::device::cpu>;  // images × values, in any memory order
template <class T>
using Pictures = nb::ndarray<T, nb::ndim<4>, nb::device::cpu>;
template <class T>
using Rows = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Numbers = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using In = Values<const float>;
using Out = Values<float>;
using PicturesIn = Pictures<const float>;
using PicturesOut = Pictures<float>;
using Pair = std::pair<std::size_t, std::size_t>;

// An array is used as it is or refused: a result written to a converted copy would be lost.
auto array(const char* name) { return nb::arg(name).noconvert(); }
auto maybe(const char* name) { return nb::arg(name).noconvert().none(); }

void require(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(what);
}

template <class Array>
auto data_or_null(const Array& array) {
    return array.is_valid() && array.size() > 0 ? array.data() : nullptr;
}

// Whether an array is dense in memory, with the channels directly after the first dimension, or last.
template <class Array>
bool dense(const Array& a, bool channels_last) {
    if (a.size() == 0) return true;
    std::int64_t expected = 1;
    const auto next = [&](std::size_t i) {
        const bool fits = a.shape(i) == 1 || a.stride(i) == expected;
        expected *= static_cast<std::int64_t>(a.shape(i));
        return fits;
    };
    bool fits = !channels_last || next(1);
    for (std::size_t i = a.ndim(); i-- > (channels_last ? 2 : 1);) fits = next(i) && fits;
    return next(0) && fits;
}

template <class First, class Other>
bool same_layout(const First& first, const Other& other) {
    bool same = first.ndim() == other.ndim();
    for (std::size_t i = 0; same && i < first.ndim(); ++i)
        same = first.shape(i) == other.shape(i) && (first.shape(i) == 1 || first.stride(i) == other.stride(i));
    return same;
}

template <class First, class... Others>
void same_shape(const First& first, const Others&... others) {
    require((same_layout(first, others) && ...), "arrays of one call must have one shape and order");
}

template <class Tensor>
Shape tensor_shape(const Tensor& x, int threads) {
    require(x.ndim() > 1 && (dense(x, false) || (x.ndim() == 4 && dense(x, true))), "expected dense arrays");
    const std::size_t images = x.shape(0);
    return {images, images == 0 ? 0 : x.size() / images, threads, find_kernels()};
}

template <class... Arrays>
void channels_last(const Arrays&... arrays) {
    require((dense(arrays, true) && ...), "expected pictures with the channels last in memory");
}

Pixels pixels(const PicturesIn& x, int threads) {
    channels_last(x);
    const std::size_t channels = x.shape(1);
    require(channels % 8 == 0 && x.size() > 0, "expected pixels, and channels in eights");
    return {x.size() / channels, channels, threads, find_kernels()};
}

// The argument of a kernel for an array: its memory, or a tent from its four numbers.
template <class Array>
auto argument(const Array& array) {
    return array.data();
}
Tent argument(const Numbers<const double>& numbers) {
    require(numbers.size() == 4, "a tent has four numbers");
    const auto number = [&](std::size_t i) { return static_cast<float>(numbers.data()[i]); };
    return {number(0), number(1), number(2), number(3)};
}

// Checks an array other than the first of a call: a tensor has the same shape, any other has one number per image or
// channel.
template <class First, class Array>
void check(const First& first, std::size_t, const Array& array) {
    same_shape(first, array);
}
template <class First, class T>
void check(const First&, std::size_t count, const Numbers<T>& array) {
    const bool tent = std::is_same_v<T, const double>;
    require(tent || array.shape(0) == count, "expected one number per image or per channel");
}

// A kernel on tensors of the same shape, as a function of these arrays and the number of threads.
template <class... Arrays, class Units, class... Arguments>
auto call(void (*kernel)(Units, Arguments...)) {
    return [kernel](Arrays... arrays, int threads) {
        const auto& first = std::get<0>(std::tie(arrays...));
        constexpr bool kByChannel = std::is_same_v<Units, Pixels>;
        const Units units = [&] {
            if constexpr (kByChannel) return pixels(first, threads);
            else return tensor_shape(first, threads);
        }();
        (check(first, first.shape(kByChannel ? 1 : 0), arrays), ...);
        const auto arguments = std::make_tuple(argument(arrays)...);
        const WithoutGil released;
        std::apply([&](auto... each) { kernel(units, each...); }, arguments);
    };
}

// The scales of filters: one for each, one for all, or 1.
struct Scales {
    std::vector<float> spread;
    const float* data;

    Scales(const Values<const float>& given, std::size_t filters) {
        const std::size_t count = given.is_valid() ? given.size() : 0;
        require(!given.is_valid() || count == 1 || (given.ndim() == 1 && count == filters && given.stride(0) == 1),
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
    require(signs.shape(1) == x.shape(1) && conv.supported(), "a convolution that has no kernel");
    return conv;
}

template <class Array>
void check_output(const SignConv& conv, const Array& out) {
    channels_last(out);
    require(out.shape(0) == conv.images && out.shape(1) == conv.out_channels && out.shape(2) == conv.out_height() &&
                out.shape(3) == conv.out_width(),
            "the output has another shape");
}

template <class Planes>
auto words_of(const SignConv& conv, const Planes& planes) {
    require(planes.size() == conv.images * conv.plane_words(), "planes have another size");
    using Word = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(planes.data())>>,
                                    const std::uint64_t, std::uint64_t>;
    return reinterpret_cast<Word*>(planes.data());
}

ImageSigns image_signs(const SignConv& conv, const PicturesIn& x, const Numbers<float>& mean,
                       const Numbers<float>& inverse_std) {
    require(mean.size() == inverse_std.size() && (mean.size() == 0 || mean.size() == conv.images),
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
    const Tent slope = argument(tent);
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
    require(conv.supported(), "a convolution that has no kernel");
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
void require_all(const Arrays&... arrays) {
    require((arrays.is_valid() && ...), "expected arrays, got None");
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
        require_all(x, signs, weight, bias, shortcut, counts, planes, out, of_images);
        const SignConv conv = sign_conv(x, signs, stride, padding, threads);
        check_output(conv, shortcut), check_output(conv, counts), check_output(conv, out);
        require(conv.taps() * conv.in_channels <= kMostCounts, "a convolution that has no kernel");
        for (const auto* each : {&weight, &bias, &slope, &before, &after}) per_filter(conv, *each);
        const bool standardised = of_images.size() > 0;
        require(!standardised || (of_images.shape(0) == 2 && of_images.shape(1) == conv.images),
                "expected two numbers per image");
        return {conv,
                {scale, conv.out_channels},
                {weight.data(), bias.data(), eps},
                {data_or_null(slope), data_or_null(before), data_or_null(after)},
                {x.data(), shortcut.data(), counts.data(), words_of(conv, planes), out.data(),
                 {data_or_null(of_images), standardised ? of_images.data() + conv.images : nullptr, nullptr, nullptr}}};
    }

    static void per_filter(const SignConv& conv, const Numbers<const float>& array) {
        require(!array.is_valid() || array.size() == conv.out_channels, "expected one number per filter");
    }

    void keep_statistics(const Rows<double>& of_counts) {
        require(of_counts.shape(0) == 2 && of_counts.shape(1) == conv.out_channels, "expected two numbers per filter");
        state.statistics.mean = of_counts.data(), state.statistics.variance = of_counts.data() + conv.out_channels;
    }
};

void branch_forward(const BranchTensors& tensors, Rows<double> of_counts, Numbers<const float> running_mean,
                    Numbers<const float> running_variance, int threads) {
    Branch branch = Branch::of(tensors, threads);
    if (of_counts.is_valid()) {
        branch.keep_statistics(of_counts);
    } else {
        require_all(running_mean, running_variance);
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
    require(grad_shortcut.is_valid() || x.size() == grad.size(), "x cannot be the shortcut");
    same_shape(x, grad_x), same_shape(signs, grad_signs);
    const std::size_t channels = branch.conv.out_channels;
    require(grad_numbers.shape(0) == 5 && grad_numbers.shape(1) == channels, "expected five gradients per filter");
    const Tent slope = argument(tent);
    float* numbers = grad_numbers.data();
    const BranchGradients gradients{
        grad_x.data(),      data_or_null(grad_shortcut), grad_signs.data(),      split ? numbers : nullptr,
        numbers + channels, numbers + 2 * channels,      numbers + 3 * channels, numbers + 4 * channels};
    const WithoutGil released;
    rbnn::branch_backward(branch.conv, signs.data(), branch.scales.data, branch.norm, branch.end, branch.state, slope,
                          grad.data(), gradients);
}

// Filters and their rotation.
struct WeightPath {
    Filters filters;
    Rotation rotation;

    WeightPath(const Values<const float>& weight, const Rows<const float>& r1, const Rows<const float>& r2,
               const Numbers<const float>& beta, bool in_gradient, int threads)
        : filters{0, 0, 1, weight.data(), threads, find_kernels()},
          rotation{data_or_null(r1), data_or_null(r2), 0, 0, data_or_null(beta), beta.is_valid() ? beta.size() : 0,
                   in_gradient} {
        const Shape shape = tensor_shape(weight, threads);
        filters.count = shape.images, filters.values = shape.values;
        if (!dense(weight, false)) filters.taps = weight.shape(2) * weight.shape(3);
        require(filters.values > 1, "expected filters of two values or more");
        require(r1.is_valid() == r2.is_valid(), "expected two rotations or none");
        if (r1.is_valid()) rotation.rows = r1.shape(0), rotation.columns = r2.shape(0);
        require(!r1.is_valid() || (r1.shape(1) == rotation.rows && r2.shape(1) == rotation.columns &&
                                   rotation.rows * rotation.columns <= filters.values),
                "expected square rotations of a filter's values");
        require(rotation.betas <= 1 || rotation.betas == filters.count, "expected one beta, or one per filter");
    }

    // Checks the array for Rᵀŵ of each filter, if they are rotated.
    template <class Array>
    void check_turned(const Array& turned) const {
        require(!rotation.r1 || (turned.shape(0) == filters.count && turned.shape(1) == filters.values),
                "turned has another shape");
    }

    template <class Array>
    void check_statistics(const Array& statistics) const {
        require(statistics.shape(0) == 2 && statistics.shape(1) == filters.count, "expected two numbers per filter");
    }
};

void rotated_weight(Values<const float> weight, Rows<const float> r1, Rows<const float> r2, Numbers<const float> beta,
                    Values<float> mixed, Rows<float> turned, Rows<float> statistics, int threads) {
    const WeightPath path(weight, r1, r2, beta, true, threads);
    same_shape(weight, mixed);
    path.check_turned(turned), path.check_statistics(statistics);
    const WithoutGil released;
    rbnn::rotated_weight(path.filters, path.rotation, mixed.data(), turned.data(), statistics.data(),
                         statistics.data() + path.filters.count);
}

void rotated_weight_backward(Values<const float> grad, Values<const float> weight, Rows<const float> r1,
                             Rows<const float> r2, Numbers<const float> beta, bool in_gradient,
                             Rows<const float> turned, Rows<const float> statistics, Values<float> grad_weight,
                             Numbers<float> grad_beta, int threads) {
    const WeightPath path(weight, r1, r2, beta, in_gradient, threads);
    same_shape(weight, grad, grad_weight);
    path.check_turned(turned), path.check_statistics(statistics);
    require(!path.rotation.beta || grad_beta.size() == path.filters.count, "expected one gradient per filter");
    const WithoutGil released;
    rbnn::rotated_weight_backward(path.filters, path.rotation, grad.data(), turned.data(), statistics.data(),
                                  statistics.data() + path.filters.count, grad_weight.data(),
                                  path.rotation.beta ? grad_beta.data() : nullptr);
}

}  // namespace calls
}  // namespace

void bind_training(nb::module_& m) {
    m.def("keep_freed_memory", &keep_freed_memory,
          "Freed memory stays with the process, for programs that allocate the same again and again. "
          "False where the C library has no such switch.");
    m.def("sign_forward", call<In, Out>(sign_forward), array("x"), array("out"), "threads"_a,
          "out = +1 where x > 0, else -1.");
    m.def("sign_backward", call<In, In, Out, Numbers<const double>>(sign_backward), array("grad"), array("x"),
          array("grad_x"), array("tent"), "threads"_a,
          "grad_x = grad max(peak - slope |x|, 0) (1 - tanh^2(steepness x)) where |x| <= support, else 0; the tent is "
          "(peak, slope, support, steepness).");
    m.def("standardised_sign_forward", call<In, Out, Numbers<float>, Numbers<float>>(standardised_sign_forward),
          array("x"), array("out"), array("mean"), array("inverse_std"), "threads"_a,
          "out = sign(x - mean), mean and std per image.");
    m.def("standardised_sign_backward",
          call<In, In, Numbers<const float>, Numbers<const float>, Out, Numbers<const double>>(
              standardised_sign_backward),
          array("grad"), array("x"), array("mean"), array("inverse_std"), array("grad_x"), array("tent"), "threads"_a,
          "Gradient of standardised_sign_forward by the tent at the standardised x.");
    m.def("add_hardtanh_forward", call<In, In, Out>(add_hardtanh_forward), array("a"), array("b"), array("out"),
          "threads"_a, "out = clamp(a + b, -1, 1).");
    m.def("add_hardtanh_backward", call<In, In, Out>(add_hardtanh_backward), array("grad"), array("out"),
          array("grad_in"), "threads"_a, "grad_in = grad where |out| < 1, else 0.");

    using PerChannel = Numbers<const float>;
    m.def("batch_statistics", call<PicturesIn, Numbers<double>, Numbers<double>>(batch_statistics), array("y"),
          array("mean"), array("variance"), "threads"_a, "Mean and biased variance of each channel of y.");
    m.def("norm_add_hardtanh", call<PicturesIn, PerChannel, PerChannel, PicturesIn, PicturesOut>(norm_add_hardtanh),
          array("y"), array("scale"), array("shift"), array("shortcut"), array("out"), "threads"_a,
          "out = clamp(y*scale + shift + shortcut, -1, 1), scale and shift per channel.");
    m.def("norm_add_hardtanh_backward",
          call<PicturesIn, PicturesIn, PicturesIn, PerChannel, PicturesOut, Numbers<double>, Numbers<double>>(
              norm_add_hardtanh_backward),
          array("grad"), array("out"), array("y"), array("mean"), array("grad_sum"), array("sum"), array("product"),
          "threads"_a,
          "grad_sum = grad where |out| < 1, else 0; of each channel its sum and its sum of products with y - mean.");
    m.def("norm_backward",
          call<PicturesIn, PicturesIn, PerChannel, PerChannel, PerChannel, PerChannel, PicturesOut>(norm_backward),
          array("grad_sum"), array("y"), array("mean"), array("factor"), array("pull"), array("shift"), array("grad_y"),
          "threads"_a, "grad_y = factor*grad_sum + pull*(y - mean) + shift, all but grad_sum and y per channel.");

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
    m.def("rotated_weight", &calls::rotated_weight, array("weight"), maybe("r1"), maybe("r2"), maybe("beta"),
          array("mixed"), array("turned"), array("statistics"), "threads"_a,
          "mixed = w + |sin beta| (R'w - w) of standardised filters w; turned = R'w; statistics are mean and 1/std of "
          "each filter.");
    m.def("rotated_weight_backward", &calls::rotated_weight_backward, array("grad"), array("weight"), maybe("r1"),
          maybe("r2"), maybe("beta"), "in_gradient"_a, array("turned"), array("statistics"), array("grad_weight"),
          array("grad_beta"), "threads"_a, "The gradient of rotated_weight for weight and beta, one per filter.");
}

}  // namespace rbnn
