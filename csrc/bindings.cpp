// The module rbnn._core: the only file that knows Python.  Arrays are checked here, pointers are trusted below.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>

#include "bits.h"
#include "training.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Images = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ImagesOut = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using NumbersOut = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<const rbnn::Word, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Taken as it is or refused: a converted copy of an output would swallow the result.
auto array(const char* name) { return nb::arg(name).noconvert(); }

template <class First, class... Others>
rbnn::Shape same_shape(int threads, const First& first, const Others&... others) {
    if (!((others.shape(0) == first.shape(0) && others.shape(1) == first.shape(1)) && ...))
        throw std::invalid_argument("arrays of one call must have one shape");
    return {first.shape(0), first.shape(1), threads};
}

template <class... Arrays>
void one_per_image(const rbnn::Shape& shape, const Arrays&... arrays) {
    if (!((arrays.shape(0) == shape.images) && ...)) throw std::invalid_argument("expected one number per image");
}

nb::ndarray<nb::numpy, rbnn::Word, nb::ndim<2>> pack_bits(Images values) {
    const std::size_t rows = values.shape(0), n = values.shape(1), words = rbnn::words_for(n);
    auto* out = new rbnn::Word[rows * words];
    nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<rbnn::Word*>(p); });
    {
        nb::gil_scoped_release release;
        rbnn::pack_rows(values.data(), rows, n, out);
    }
    return {out, {rows, words}, owner};
}

std::int64_t dot(Words a, Words b, std::size_t n) {
    if (a.shape(0) != rbnn::words_for(n) || b.shape(0) != rbnn::words_for(n))
        throw std::invalid_argument("rows of n bits hold ceil(n / 64) words");
    return rbnn::dot(a.data(), b.data(), n);
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "Bits and fused training kernels: the compiled part of rbnn.";
    m.def("pack_bits", &pack_bits, array("values"),
          "Rows of floats as rows of 64-bit words: bit 1 for values > 0, lowest bit first, tail bits 0.");
    m.def("dot", &dot, array("a"), array("b"), "n"_a,
          "n - 2 popcount(a xor b): dot product of two packed rows of n signs.");

    m.def(
        "sign_forward",
        [](Images x, ImagesOut out, int threads) {
            const auto shape = same_shape(threads, x, out);
            nb::gil_scoped_release release;
            rbnn::sign_forward(shape, x.data(), out.data());
        },
        array("x"), array("out"), "threads"_a, "out = +1 where x > 0, else -1.");
    m.def(
        "sign_backward",
        [](Images grad, Images x, ImagesOut grad_x, float peak, float slope, float support, int threads) {
            const auto shape = same_shape(threads, grad, x, grad_x);
            nb::gil_scoped_release release;
            rbnn::sign_backward(shape, {peak, slope, support}, grad.data(), x.data(), grad_x.data());
        },
        array("grad"), array("x"), array("grad_x"), "peak"_a, "slope"_a, "support"_a, "threads"_a,
        "grad_x = grad max(peak - slope |x|, 0) where |x| <= support, else 0.");
    m.def(
        "standardised_sign_forward",
        [](Images x, ImagesOut out, NumbersOut mean, NumbersOut inverse_std, int threads) {
            const auto shape = same_shape(threads, x, out);
            one_per_image(shape, mean, inverse_std);
            nb::gil_scoped_release release;
            rbnn::standardised_sign_forward(shape, x.data(), mean.data(), inverse_std.data(), out.data());
        },
        array("x"), array("out"), array("mean"), array("inverse_std"), "threads"_a,
        "out = sign(x - mean), mean and std per image.");
    m.def(
        "standardised_sign_backward",
        [](Images grad, Images x, Numbers mean, Numbers inverse_std, ImagesOut grad_x, float peak, float slope,
           float support, int threads) {
            const auto shape = same_shape(threads, grad, x, grad_x);
            one_per_image(shape, mean, inverse_std);
            nb::gil_scoped_release release;
            rbnn::standardised_sign_backward(shape, {peak, slope, support}, grad.data(), x.data(), mean.data(),
                                             inverse_std.data(), grad_x.data());
        },
        array("grad"), array("x"), array("mean"), array("inverse_std"), array("grad_x"), "peak"_a, "slope"_a,
        "support"_a, "threads"_a,
        "Gradient of standardised_sign_forward by the tent at the standardised x.");
    m.def(
        "add_hardtanh_forward",
        [](Images a, Images b, ImagesOut out, int threads) {
            const auto shape = same_shape(threads, a, b, out);
            nb::gil_scoped_release release;
            rbnn::add_hardtanh_forward(shape, a.data(), b.data(), out.data());
        },
        array("a"), array("b"), array("out"), "threads"_a, "out = clamp(a + b, -1, 1).");
    m.def(
        "add_hardtanh_backward",
        [](Images grad, Images out, ImagesOut grad_in, int threads) {
            const auto shape = same_shape(threads, grad, out, grad_in);
            nb::gil_scoped_release release;
            rbnn::add_hardtanh_backward(shape, grad.data(), out.data(), grad_in.data());
        },
        array("grad"), array("out"), array("grad_in"), "threads"_a, "grad_in = grad where |out| < 1, else 0.");
}
