// The training kernels in the module rbnn._core.  Tensors are as in torch: images are (images, channels, height,
// width) with the channels last in memory, and missing arguments are None.  Arrays are checked here; the code below
// trusts pointers.
#include "bindings/training.h"

#include <tuple>
#include <type_traits>

#include "base/freed_memory.h"
#include "bindings/arrays.h"
#include "bindings/without_gil.h"
#include "simd/dispatch.h"
#include "training/batch_norm.h"
#include "training/elementwise.h"
#include "training/rotated_weight.h"

namespace rbnn {
namespace {

template <class Tensor>
Shape tensor_shape(const Tensor& x, int threads) {
    expect(x.ndim() > 1 && (dense(x, false) || (x.ndim() == 4 && dense(x, true))), "expected dense arrays");
    const std::size_t images = x.shape(0);
    return {images, images == 0 ? 0 : x.size() / images, threads, find_kernels()};
}

Pixels pixels(const PicturesIn& x, int threads) {
    channels_last(x);
    const std::size_t channels = x.shape(1);
    expect(channels % 8 == 0 && x.size() > 0, "expected pixels, and channels in eights");
    return {x.size() / channels, channels, threads, find_kernels()};
}

// The argument of a kernel for an array: its memory, or a tent from its four numbers.
template <class Array>
auto argument(const Array& array) {
    return array.data();
}
Tent argument(const Numbers<const double>& numbers) { return tent_of(numbers); }

// Checks an array other than the first of a call: a tensor has the same shape, any other has one number per image or
// channel.
template <class First, class Array>
void check(const First& first, std::size_t, const Array& array) {
    same_shape(first, array);
}
template <class First, class T>
void check(const First&, std::size_t count, const Numbers<T>& array) {
    const bool tent = std::is_same_v<T, const double>;
    expect(tent || array.shape(0) == count, "expected one number per image or per channel");
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

// The functions of the module that have the names of their kernels.
namespace calls {

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
        expect(filters.values > 1, "expected filters of two values or more");
        expect(r1.is_valid() == r2.is_valid(), "expected two rotations or none");
        if (r1.is_valid()) rotation.rows = r1.shape(0), rotation.columns = r2.shape(0);
        expect(!r1.is_valid() || (r1.shape(1) == rotation.rows && r2.shape(1) == rotation.columns &&
                                   rotation.rows * rotation.columns <= filters.values),
                "expected square rotations of a filter's values");
        expect(rotation.betas <= 1 || rotation.betas == filters.count, "expected one beta, or one per filter");
    }

    // Checks the array for Rᵀŵ of each filter, if they are rotated.
    template <class Array>
    void check_turned(const Array& turned) const {
        expect(!rotation.r1 || (turned.shape(0) == filters.count && turned.shape(1) == filters.values),
                "turned has another shape");
    }

    template <class Array>
    void check_statistics(const Array& statistics) const {
        expect(statistics.shape(0) == 2 && statistics.shape(1) == filters.count, "expected two numbers per filter");
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
    expect(!path.rotation.beta || grad_beta.size() == path.filters.count, "expected one gradient per filter");
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

    m.def("rotated_weight", &calls::rotated_weight, array("weight"), maybe("r1"), maybe("r2"), maybe("beta"),
          array("mixed"), array("turned"), array("statistics"), "threads"_a,
          "mixed = w + |sin beta| (R'w - w) of standardised filters w; turned = R'w; statistics are mean and 1/std of "
          "each filter.");
    m.def("rotated_weight_backward", &calls::rotated_weight_backward, array("grad"), array("weight"), maybe("r1"),
          maybe("r2"), maybe("beta"), "in_gradient"_a, array("turned"), array("statistics"), array("grad_weight"),
          array("grad_beta"), "threads"_a, "The gradient of rotated_weight for weight and beta, one per filter.");
    bind_sign_conv(m);
}

}  // namespace rbnn
