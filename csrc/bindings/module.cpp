// The module rbnn._core: the only file that knows Python.  Arrays are checked here, pointers are trusted below.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <stdexcept>
#include <tuple>

#include "base/bits.h"
#include "bindings/without_gil.h"
#include "training/batch_norm.h"
#include "training/branch.h"
#include "simd/dispatch.h"
#include "base/freed_memory.h"
#include "program/program.h"
#include "training/rotated_weight.h"
#include "training/sign_conv.h"
#include "training/elementwise.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Images = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ImagesOut = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using NumbersOut = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using DoublesOut = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Taken as it is or refused: a converted copy of an output would swallow the result.
auto array(const char* name) { return nb::arg(name).noconvert(); }

template <class First, class... Others>
rbnn::Shape same_shape(int threads, const First& first, const Others&... others) {
    if (!((others.shape(0) == first.shape(0) && others.shape(1) == first.shape(1)) && ...))
        throw std::invalid_argument("arrays of one call must have one shape");
    return {first.shape(0), first.shape(1), threads, rbnn::find_kernels()};
}

template <class... Arrays>
void one_per_image(const rbnn::Shape& shape, const Arrays&... arrays) {
    if (!((arrays.shape(0) == shape.images) && ...)) throw std::invalid_argument("expected one number per image");
}

// Arrays (pixels, channels), and others with one number per channel.
template <class... PerChannel>
rbnn::Pixels pixels(const rbnn::Shape& shape, const PerChannel&... numbers) {
    if (shape.values % 8 != 0 || shape.images == 0) throw std::invalid_argument("expected pixels, and channels in eights");
    if (!((numbers.shape(0) == shape.values) && ...)) throw std::invalid_argument("expected one number per channel");
    return {shape.images, shape.values, shape.threads, shape.kernels};
}

using Pictures = nb::ndarray<const float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using PicturesOut = nb::ndarray<float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Planes = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using PlanesOut = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Pair = std::pair<std::size_t, std::size_t>;

// x (images, height, width, in_channels), weight (out_channels, kernel_y, kernel_x, in_channels), both channels last.
template <class Input, class Weight>
rbnn::SignConv sign_conv(const Input& x, const Weight& weight, Pair stride, Pair padding, int threads) {
    const rbnn::SignConv conv{x.shape(0),      x.shape(1),      x.shape(2),      x.shape(3),     weight.shape(0),
                              weight.shape(1), weight.shape(2), stride.first,    stride.second,  padding.first,
                              padding.second,  threads,         rbnn::find_kernels()};
    if (weight.shape(3) != x.shape(3) || !conv.supported()) throw std::invalid_argument("a convolution that has no kernel");
    return conv;
}

template <class Array>
void check_output(const rbnn::SignConv& conv, const Array& out) {
    if (out.shape(0) != conv.images || out.shape(1) != conv.out_height() || out.shape(2) != conv.out_width() ||
        out.shape(3) != conv.out_channels)
        throw std::invalid_argument("the output has another shape");
}

void sign_conv_forward(Pictures x, Pictures signs, Numbers scale, Pair stride, Pair padding, PicturesOut out,
                       PlanesOut planes, NumbersOut mean, NumbersOut inverse_std, int threads) {
    const rbnn::SignConv conv = sign_conv(x, signs, stride, padding, threads);
    check_output(conv, out);
    if (scale.shape(0) != conv.out_channels) throw std::invalid_argument("expected one scale per filter");
    if (planes.shape(0) != conv.images * conv.plane_words()) throw std::invalid_argument("planes have another size");
    const bool standardised = mean.shape(0) > 0;
    const rbnn::Shape image{1, conv.in_values(), 1, conv.kernels};
    if (standardised) one_per_image({conv.images, 0, 1, conv.kernels}, mean, inverse_std);
    const rbnn::WithoutGil released;
    const rbnn::SignFilters filters(conv, signs.data(), scale.data());
    const auto level = [&](std::size_t i) {
        if (!standardised) return 0.0f;
        rbnn::image_statistics(image, x.data() + i * image.values, mean.data() + i, inverse_std.data() + i);
        return mean.data()[i];
    };
    rbnn::sign_conv_forward(conv, filters, x.data(), level, reinterpret_cast<std::uint64_t*>(planes.data()), out.data(), {});
}

void sign_conv_grad_input(Pictures grad, Pictures signs, Numbers scale, Pair stride, Pair padding, Pictures x, Numbers mean,
                          Numbers inverse_std, bool through_tent, float peak, float slope, float support, float steepness, PicturesOut grad_x,
                          int threads) {
    const rbnn::SignConv conv = sign_conv(grad_x, signs, stride, padding, threads);
    check_output(conv, grad);
    if (scale.shape(0) != conv.out_channels) throw std::invalid_argument("expected one scale per filter");
    const bool standardised = mean.shape(0) > 0;
    const rbnn::Shape image{1, conv.in_values(), 1, conv.kernels};
    if (standardised) one_per_image({conv.images, 0, 1, conv.kernels}, mean, inverse_std);
    if (x.size() != grad_x.size()) throw std::invalid_argument("arrays of one call must have one shape");
    const rbnn::WithoutGil released;
    const rbnn::SignFilters filters(conv, signs.data(), scale.data());
    const auto finish = [&](std::size_t i) {
        const float* at = x.data() + i * image.values;
        float* out = grad_x.data() + i * image.values;
        if (through_tent && standardised)
            rbnn::standardised_sign_backward(image, {peak, slope, support, steepness}, out, at, mean.data() + i, inverse_std.data() + i, out);
        else if (through_tent)
            rbnn::sign_backward(image, {peak, slope, support, steepness}, out, at, out);
    };
    rbnn::sign_conv_grad_input(conv, filters, grad.data(), grad_x.data(), {{}, finish});
}

void sign_conv_grad_weight(Pictures grad, Planes planes, Pair size, Pair stride, Pair padding, PicturesOut grad_weight,
                           int threads) {
    const rbnn::SignConv conv{grad.shape(0), size.first, size.second, grad_weight.shape(3), grad_weight.shape(0),
                              grad_weight.shape(1), grad_weight.shape(2), stride.first, stride.second, padding.first,
                              padding.second, threads, rbnn::find_kernels()};
    if (!conv.supported()) throw std::invalid_argument("a convolution that has no kernel");
    check_output(conv, grad);
    if (planes.shape(0) != conv.images * conv.plane_words()) throw std::invalid_argument("planes have another size");
    const rbnn::WithoutGil released;
    rbnn::sign_conv_grad_weight(conv, grad.data(), reinterpret_cast<const std::uint64_t*>(planes.data()), grad_weight.data());
}

using Counts = nb::ndarray<std::int16_t, nb::ndim<4>, nb::c_contig, nb::device::cpu>;

// What both passes of a branch are given, checked.
struct BranchArguments {
    rbnn::SignConv conv;
    rbnn::Norm norm;
    rbnn::BranchEnd end;
    rbnn::BranchState state;

    BranchArguments(const Pictures& x, const Pictures& signs, const Numbers& scale, Pair stride, Pair padding, const Numbers& weight,
                    const Numbers& bias, double eps, const Numbers& slope, const Numbers& before, const Numbers& after,
                    const Pictures& shortcut, const Counts& counts, const PlanesOut& planes,
                    const PicturesOut& out, const NumbersOut& image_mean, const NumbersOut& image_inverse_std,
                    const DoublesOut& mean, const DoublesOut& variance, int threads)
        : conv(sign_conv(x, signs, stride, padding, threads)), norm{weight.data(), bias.data(), eps},
          end{slope.size() ? slope.data() : nullptr, before.size() ? before.data() : nullptr, after.size() ? after.data() : nullptr},
          state{x.data(), shortcut.data(), counts.data(), reinterpret_cast<std::uint64_t*>(planes.data()), out.data(),
                {image_mean.size() ? image_mean.data() : nullptr, image_inverse_std.data(), mean.data(), variance.data()}} {
        check_output(conv, shortcut), check_output(conv, counts), check_output(conv, out);
        if (conv.taps() * conv.in_channels > rbnn::kMostCounts) throw std::invalid_argument("a convolution that has no kernel");
        for (const std::size_t size : {scale.size(), weight.size(), bias.size(), mean.size(), variance.size()})
            if (size != conv.out_channels) throw std::invalid_argument("expected one number per filter");
        for (const std::size_t size : {slope.size(), before.size(), after.size()})
            if (size != 0 && size != conv.out_channels) throw std::invalid_argument("expected one number per filter");
        if (planes.shape(0) != conv.images * conv.plane_words()) throw std::invalid_argument("planes have another size");
        if (image_mean.size() > 0) one_per_image({conv.images, 0, 1, conv.kernels}, image_mean, image_inverse_std);
    }
};

void branch_forward(Pictures x, Pictures signs, Numbers scale, Pair stride, Pair padding, Numbers weight, Numbers bias, double eps,
                    Numbers slope, Numbers before, Numbers after, Pictures shortcut, Counts counts, PlanesOut planes, PicturesOut out, NumbersOut image_mean,
                    NumbersOut image_inverse_std, DoublesOut mean, DoublesOut variance, int threads) {
    const BranchArguments given(x, signs, scale, stride, padding, weight, bias, eps, slope, before, after, shortcut, counts, planes,
                                out, image_mean, image_inverse_std, mean, variance, threads);
    const rbnn::WithoutGil released;
    rbnn::branch_forward(given.conv, signs.data(), scale.data(), given.norm, given.end, given.state);
}

void branch_backward(Pictures grad, float peak, float tent_slope, float support, float steepness, PicturesOut grad_x, PicturesOut grad_shortcut,
                     PicturesOut grad_signs, NumbersOut grad_scale, NumbersOut grad_weight, NumbersOut grad_bias,
                     NumbersOut grad_slope, NumbersOut grad_after, Pictures x, Pictures signs, Numbers scale, Pair stride, Pair padding,
                     Numbers weight, Numbers bias, double eps, Numbers slope, Numbers before, Numbers after, Pictures shortcut, Counts counts,
                     PlanesOut planes, PicturesOut out, NumbersOut image_mean, NumbersOut image_inverse_std, DoublesOut mean,
                     DoublesOut variance, int threads) {
    const BranchArguments given(x, signs, scale, stride, padding, weight, bias, eps, slope, before, after, shortcut, counts, planes,
                                out, image_mean, image_inverse_std, mean, variance, threads);
    check_output(given.conv, grad);
    if (grad_shortcut.size()) check_output(given.conv, grad_shortcut);
    if (!grad_shortcut.size() && x.size() != out.size()) throw std::invalid_argument("x cannot be the shortcut");
    if (grad_x.size() != x.size() || grad_signs.size() != signs.size() || (grad_scale.size() && grad_scale.size() != scale.size()) ||
        grad_weight.size() != scale.size() || grad_bias.size() != scale.size() || grad_slope.size() != slope.size() ||
        grad_after.size() != slope.size())
        throw std::invalid_argument("a gradient has another size");
    const rbnn::WithoutGil released;
    rbnn::branch_backward(given.conv, signs.data(), scale.data(), given.norm, given.end, given.state, {peak, tent_slope, support, steepness}, grad.data(),
                          {grad_x.data(), grad_shortcut.size() ? grad_shortcut.data() : nullptr, grad_signs.data(), grad_scale.size() ? grad_scale.data() : nullptr,
                           grad_weight.data(), grad_bias.data(), grad_slope.data(), grad_after.data()});
}

// Weights (filters, values), and rotations that are matrices without values where nothing is rotated.
struct WeightPath {
    rbnn::Filters filters;
    rbnn::Rotation rotation;

    WeightPath(const Images& weight, std::size_t taps, const Images& r1, const Images& r2, const Numbers& beta, bool in_gradient,
               int threads)
        : filters{weight.shape(0), weight.shape(1), taps, weight.data(), threads, rbnn::find_kernels()},
          rotation{r1.size() ? r1.data() : nullptr, r2.data(), r1.shape(0), r2.shape(0),
                   beta.size() ? beta.data() : nullptr, beta.size(), in_gradient} {
        if (filters.values < 2 || taps == 0 || filters.values % taps != 0) throw std::invalid_argument("expected taps of two values or more");
        if (r1.shape(1) != rotation.rows || r2.shape(1) != rotation.columns || rotation.rows * rotation.columns > filters.values)
            throw std::invalid_argument("expected square rotations of a filter's values");
        if (rotation.betas > 1 && rotation.betas != filters.count) throw std::invalid_argument("expected one beta, or one per filter");
    }
};

void rotated_weight(Images weight, std::size_t taps, Images r1, Images r2, Numbers beta, ImagesOut mixed, ImagesOut turned,
                    NumbersOut mean, NumbersOut inverse_std, int threads) {
    const WeightPath path(weight, taps, r1, r2, beta, true, threads);
    one_per_image(same_shape(threads, weight, mixed), mean, inverse_std);
    if (path.rotation.r1) same_shape(threads, weight, turned);
    const rbnn::WithoutGil released;
    rbnn::rotated_weight(path.filters, path.rotation, mixed.data(), turned.data(), mean.data(), inverse_std.data());
}

void rotated_weight_backward(Images grad, Images weight, std::size_t taps, Images r1, Images r2, Numbers beta, bool in_gradient,
                             Images turned, Numbers mean, Numbers inverse_std, ImagesOut grad_weight, NumbersOut grad_beta,
                             int threads) {
    const WeightPath path(weight, taps, r1, r2, beta, in_gradient, threads);
    one_per_image(same_shape(threads, weight, grad, grad_weight), mean, inverse_std);
    if (path.rotation.r1) same_shape(threads, weight, turned);
    if (path.rotation.beta && grad_beta.shape(0) != weight.shape(0)) throw std::invalid_argument("expected one gradient per filter");
    const rbnn::WithoutGil released;
    rbnn::rotated_weight_backward(path.filters, path.rotation, grad.data(), turned.data(), mean.data(), inverse_std.data(),
                                  grad_weight.data(), path.rotation.beta ? grad_beta.data() : nullptr);
}

nb::ndarray<nb::numpy, rbnn::Word, nb::ndim<2>> pack_bits(Images values) {
    const std::size_t rows = values.shape(0), n = values.shape(1), words = rbnn::words_for(n);
    auto* out = new rbnn::Word[rows * words];
    nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<rbnn::Word*>(p); });
    {
        const rbnn::WithoutGil released;
        rbnn::pack_rows(values.data(), rows, n, out);
    }
    return {out, {rows, words}, owner};
}

using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Batch = nb::ndarray<const float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using ByteBatch = nb::ndarray<const std::uint8_t, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using BufferArguments = std::tuple<std::string, std::size_t, std::size_t, std::size_t>;
using Indices = std::map<std::string, std::size_t>;
// kind, name, inputs, outputs, tensors, numbers, words
using SpecArguments =
    std::tuple<std::string, std::string, Indices, Indices, std::map<std::string, AnyArray>,
               std::map<std::string, std::vector<double>>, std::map<std::string, std::string>>;

rbnn::Tensor as_tensor(const AnyArray& array) {
    rbnn::Tensor tensor{rbnn::Tensor::Type::float32, {}, array.data()};
    if (array.dtype() == nb::dtype<std::int32_t>())
        tensor.type = rbnn::Tensor::Type::int32;
    else if (array.dtype() == nb::dtype<std::int8_t>())
        tensor.type = rbnn::Tensor::Type::int8;
    else if (array.dtype() == nb::dtype<std::uint8_t>())
        tensor.type = rbnn::Tensor::Type::uint8;
    else if (array.dtype() != nb::dtype<float>())
        throw rbnn::Invalid("tensors are float32, int32, int8 or uint8");
    for (std::size_t i = 0; i < array.ndim(); ++i) tensor.shape.push_back(array.shape(i));
    return tensor;
}

rbnn::Buffer as_buffer(const BufferArguments& arguments) {
    const auto& [type, height, width, channels] = arguments;
    if (type != "float" && type != "bits" && type != "bytes") throw rbnn::Invalid("buffers are float, bits or bytes");
    using Type = rbnn::Buffer::Type;
    return {type == "float" ? Type::floats : type == "bits" ? Type::bits : Type::bytes, height, width, channels};
}

void make_program(rbnn::Program* self, const std::vector<BufferArguments>& buffers,
                  const std::vector<SpecArguments>& operations, std::size_t input, std::size_t output,
                  const std::string& kernels) {
    std::vector<rbnn::Buffer> places;
    for (const BufferArguments& arguments : buffers) places.push_back(as_buffer(arguments));
    std::vector<rbnn::Spec> specs;
    for (const auto& [kind, name, inputs, outputs, tensors, numbers, words] : operations) {
        specs.push_back({kind, name, inputs, outputs, {}, numbers, words});
        for (const auto& [role, array] : tensors) specs.back().tensors.emplace(role, as_tensor(array));
    }
    new (self) rbnn::Program(std::move(places), specs, input, output, rbnn::find_kernels(kernels));
}

template <class Array>
void check_batch(const rbnn::Program& program, const Array& images, int threads) {
    const rbnn::Buffer& in = program.input();
    if (images.shape(1) != in.channels || images.shape(2) != in.height || images.shape(3) != in.width)
        throw rbnn::Invalid("images have another shape than the network's input");
    if (threads < 1 || threads > 1024) throw rbnn::Invalid("threads must be 1 to 1024");
}

template <class Array>
nb::ndarray<nb::numpy, float, nb::ndim<4>> run_program(const rbnn::Program& program, Array images, int threads) {
    check_batch(program, images, threads);
    const rbnn::Buffer& result = program.output();
    const std::size_t count = images.shape(0);
    auto* out = new float[count * result.values()];
    nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    rbnn::Outcome outcome;
    std::string overflow;
    {
        rbnn::WithoutGil released;
        rbnn::Call call([&] { return released.interrupted(); });
        outcome = program.run(images.data(), count, out, threads, call);
        if (outcome == rbnn::Outcome::overflowed) overflow = program.find_overflow(images.data(), count);
    }
    if (outcome == rbnn::Outcome::interrupted) throw nb::python_error();
    if (outcome == rbnn::Outcome::image_not_finite) throw rbnn::Invalid(rbnn::kNotFinite);
    if (outcome == rbnn::Outcome::overflowed) 
        throw rbnn::Invalid("operation " + overflow + ": its values are larger than a float holds");
    if (outcome == rbnn::Outcome::answer_not_finite)
        throw rbnn::Invalid("the network's answer is not finite: its numbers are too large");
    return {out, {count, result.channels, result.height, result.width}, owner};
}

using Picture = nb::ndarray<nb::numpy, float, nb::ndim<3>>;
using GivenPicture = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

std::map<std::size_t, Picture> trace_program(const rbnn::Program& program, Batch image,
                                             const std::map<std::size_t, GivenPicture>& given) {
    check_batch(program, image, 1);
    if (image.shape(0) != 1) throw rbnn::Invalid("a trace takes one image");
    std::map<std::size_t, const float*> values;
    for (const auto& [index, picture] : given) {
        const auto& buffers = program.buffers();
        if (index >= buffers.size() || !buffers[index].same_shape({buffers[index].type, picture.shape(0), picture.shape(1), picture.shape(2)}))
            throw rbnn::Invalid("a given picture has another shape than its buffer");
        values.emplace(index, picture.data());
    }
    std::map<std::size_t, std::vector<float>> seen;
    bool stopped;
    {
        rbnn::WithoutGil released;
        rbnn::Call call([&] { return released.interrupted(); });
        seen = program.trace(image.data(), values, call);
        stopped = call.stop();
    }
    if (stopped) throw nb::python_error();
    std::map<std::size_t, Picture> result;
    for (auto& [index, found] : seen) {
        const rbnn::Buffer& buffer = program.buffers()[index];
        auto* out = new std::vector<float>(std::move(found));
        nb::capsule owner(out, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
        result.emplace(index, Picture(out->data(), {buffer.height, buffer.width, buffer.channels}, owner));
    }
    return result;
}

// Multiply-adds per second of xor + popcount in registers alone: the best of several runs that take `seconds` together.
double popcount_limit(const std::string& name, double seconds) {
    using Clock = std::chrono::steady_clock;
    const rbnn::Kernels& kernels = rbnn::find_kernels(name);
    const rbnn::WithoutGil released;
    double best = 0.0;
    rbnn::Word result = 1;
    const auto start = Clock::now();
    do {
        const auto begin = Clock::now();
        const double work = kernels.limit(1000000, result | 1, &result);
        best = std::max(best, work / std::chrono::duration<double>(Clock::now() - begin).count());
    } while (std::chrono::duration<double>(Clock::now() - start).count() < seconds);
    return best;
}

// A name of kernels comes from the user: it is refused by rbnn's own exceptions, in training as in a session.
void translate_wrong_kernels(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const rbnn::WrongKernels& wrong) {
        const nb::module_ errors = nb::module_::import_("rbnn.errors");
        nb::list known;
        for (const rbnn::Kernels* kernels : rbnn::all_kernels()) known.append(kernels->name);
        const nb::object error = wrong.exist ? errors.attr("ConfigError")(wrong.what())
                                             : errors.attr("UnknownName")("kernels", wrong.name, known);
        PyErr_SetObject(error.type().ptr(), error.ptr());
    }
}

}  // namespace

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // a daemon thread keeps what it uses when the interpreter ends
    m.doc() = "Bits and fused training kernels: the compiled part of rbnn.";
    m.def("pack_bits", &pack_bits, array("values"),
          "Rows of floats as rows of 64-bit words: bit 1 for values > 0, lowest bit first, tail bits 0.");

    m.def(
        "sign_forward",
        [](Images x, ImagesOut out, int threads) {
            const auto shape = same_shape(threads, x, out);
            const rbnn::WithoutGil released;
            rbnn::sign_forward(shape, x.data(), out.data());
        },
        array("x"), array("out"), "threads"_a, "out = +1 where x > 0, else -1.");
    m.def(
        "sign_backward",
        [](Images grad, Images x, ImagesOut grad_x, float peak, float slope, float support, float steepness, int threads) {
            const auto shape = same_shape(threads, grad, x, grad_x);
            const rbnn::WithoutGil released;
            rbnn::sign_backward(shape, {peak, slope, support, steepness}, grad.data(), x.data(), grad_x.data());
        },
        array("grad"), array("x"), array("grad_x"), "peak"_a, "slope"_a, "support"_a, "steepness"_a, "threads"_a,
        "grad_x = grad max(peak - slope |x|, 0) (1 - tanh^2(steepness x)) where |x| <= support, else 0.");
    m.def(
        "standardised_sign_forward",
        [](Images x, ImagesOut out, NumbersOut mean, NumbersOut inverse_std, int threads) {
            const auto shape = same_shape(threads, x, out);
            one_per_image(shape, mean, inverse_std);
            const rbnn::WithoutGil released;
            rbnn::standardised_sign_forward(shape, x.data(), mean.data(), inverse_std.data(), out.data());
        },
        array("x"), array("out"), array("mean"), array("inverse_std"), "threads"_a,
        "out = sign(x - mean), mean and std per image.");
    m.def(
        "standardised_sign_backward",
        [](Images grad, Images x, Numbers mean, Numbers inverse_std, ImagesOut grad_x, float peak, float slope,
           float support, float steepness, int threads) {
            const auto shape = same_shape(threads, grad, x, grad_x);
            one_per_image(shape, mean, inverse_std);
            const rbnn::WithoutGil released;
            rbnn::standardised_sign_backward(shape, {peak, slope, support, steepness}, grad.data(), x.data(), mean.data(),
                                             inverse_std.data(), grad_x.data());
        },
        array("grad"), array("x"), array("mean"), array("inverse_std"), array("grad_x"), "peak"_a, "slope"_a,
        "support"_a, "steepness"_a, "threads"_a,
        "Gradient of standardised_sign_forward by the tent at the standardised x.");
    m.def(
        "add_hardtanh_forward",
        [](Images a, Images b, ImagesOut out, int threads) {
            const auto shape = same_shape(threads, a, b, out);
            const rbnn::WithoutGil released;
            rbnn::add_hardtanh_forward(shape, a.data(), b.data(), out.data());
        },
        array("a"), array("b"), array("out"), "threads"_a, "out = clamp(a + b, -1, 1).");
    m.def(
        "add_hardtanh_backward",
        [](Images grad, Images out, ImagesOut grad_in, int threads) {
            const auto shape = same_shape(threads, grad, out, grad_in);
            const rbnn::WithoutGil released;
            rbnn::add_hardtanh_backward(shape, grad.data(), out.data(), grad_in.data());
        },
        array("grad"), array("out"), array("grad_in"), "threads"_a, "grad_in = grad where |out| < 1, else 0.");

    m.def(
        "batch_statistics",
        [](Images y, DoublesOut mean, DoublesOut variance, int threads) {
            const auto shape = pixels(same_shape(threads, y, y), mean, variance);
            const rbnn::WithoutGil released;
            rbnn::batch_statistics(shape, y.data(), mean.data(), variance.data());
        },
        array("y"), array("mean"), array("variance"), "threads"_a, "Mean and biased variance of each column of y.");
    m.def(
        "norm_add_hardtanh",
        [](Images y, Numbers scale, Numbers shift, Images shortcut, ImagesOut out, int threads) {
            const auto shape = pixels(same_shape(threads, y, shortcut, out), scale, shift);
            const rbnn::WithoutGil released;
            rbnn::norm_add_hardtanh(shape, y.data(), scale.data(), shift.data(), shortcut.data(), out.data());
        },
        array("y"), array("scale"), array("shift"), array("shortcut"), array("out"), "threads"_a,
        "out = clamp(y*scale + shift + shortcut, -1, 1), scale and shift per column.");
    m.def(
        "norm_add_hardtanh_backward",
        [](Images grad, Images out, Images y, Numbers mean, ImagesOut grad_sum, DoublesOut sum, DoublesOut product,
           int threads) {
            const auto shape = pixels(same_shape(threads, grad, out, y, grad_sum), mean, sum, product);
            const rbnn::WithoutGil released;
            rbnn::norm_add_hardtanh_backward(shape, grad.data(), out.data(), y.data(), mean.data(), grad_sum.data(),
                                             sum.data(), product.data());
        },
        array("grad"), array("out"), array("y"), array("mean"), array("grad_sum"), array("sum"), array("product"),
        "threads"_a,
        "grad_sum = grad where |out| < 1, else 0; of each column its sum and its sum of products with y - mean.");
    m.def(
        "norm_backward",
        [](Images grad_sum, Images y, Numbers mean, Numbers factor, Numbers pull, Numbers shift, ImagesOut grad_y,
           int threads) {
            const auto shape = pixels(same_shape(threads, grad_sum, y, grad_y), mean, factor, pull, shift);
            const rbnn::WithoutGil released;
            rbnn::norm_backward(shape, grad_sum.data(), y.data(), mean.data(), factor.data(), pull.data(), shift.data(),
                                grad_y.data());
        },
        array("grad_sum"), array("y"), array("mean"), array("factor"), array("pull"), array("shift"), array("grad_y"),
        "threads"_a,
        "grad_y = factor*grad_sum + pull*(y - mean) + shift, all but grad_sum and y per column.");

    m.def("keep_freed_memory", &rbnn::keep_freed_memory,
          "Freed memory stays with the process, for programs that allocate the same again and again. "
          "False where the C library has no such switch.");
    m.def("branch_forward", &branch_forward, array("x"), array("signs"), array("scale"), "stride"_a, "padding"_a, array("weight"),
          array("bias"), "eps"_a, array("slope"), array("before"), array("after"), array("shortcut"), array("counts"), array("planes"),
          array("out"), array("image_mean"),
          array("image_inverse_std"), array("mean"), array("variance"), "threads"_a,
          "out = clamp(norm(scale (signs * sign(x))) + shortcut, -1, 1), or with slopes prelu(... + before) + after; the signs of x standardised unless image_mean is empty. "
          "counts = signs * sign(x), mean and variance are theirs.");
    m.def("branch_backward", &branch_backward, array("grad"), "peak"_a, "tent_slope"_a, "support"_a, "steepness"_a, array("grad_x"),
          array("grad_shortcut"), array("grad_signs"), array("grad_scale"), array("grad_weight"), array("grad_bias"),
          array("grad_slope"), array("grad_after"), array("x"), array("signs"), array("scale"), "stride"_a, "padding"_a,
          array("weight"), array("bias"), "eps"_a, array("slope"), array("before"), array("after"), array("shortcut"), array("counts"),
          array("planes"), array("out"), array("image_mean"), array("image_inverse_std"), array("mean"), array("variance"),
          "threads"_a,
          "Gradients of branch_forward; without a grad_scale grad_signs is that of scale times signs, without a grad_shortcut "
          "x is the shortcut.");
    m.def("rotated_weight", &rotated_weight, array("weight"), "taps"_a, array("r1"), array("r2"), array("beta"), array("mixed"),
          array("turned"), array("mean"), array("inverse_std"), "threads"_a,
          "mixed = w + |sin beta| (R'w - w) of standardised filters w; turned = R'w. Rotations and beta may be empty.");
    m.def("rotated_weight_backward", &rotated_weight_backward, array("grad"), array("weight"), "taps"_a, array("r1"), array("r2"),
          array("beta"), "in_gradient"_a, array("turned"), array("mean"), array("inverse_std"), array("grad_weight"),
          array("grad_beta"), "threads"_a, "The gradient of rotated_weight for weight and beta, one per filter.");
    m.def("sign_conv_forward", &sign_conv_forward, array("x"), array("signs"), array("scale"), "stride"_a,
          "padding"_a, array("out"), array("planes"), array("mean"), array("inverse_std"), "threads"_a,
          "Convolve the signs of x, standardised per image unless mean is empty, with signs; a scale per filter. "
          "Channels last. planes keeps the signs for the gradient.");
    m.def("sign_conv_grad_input", &sign_conv_grad_input, array("grad"), array("signs"), array("scale"), "stride"_a,
          "padding"_a, array("x"), array("mean"), array("inverse_std"), "through_tent"_a, "peak"_a, "slope"_a, "support"_a, "steepness"_a, array("grad_x"),
          "threads"_a, "The gradient for x through the tent, or for its signs.");
    m.def("sign_conv_grad_weight", &sign_conv_grad_weight, array("grad"), array("planes"), "size"_a, "stride"_a, "padding"_a,
          array("grad_weight"), "threads"_a, "The gradient for the weight, (out, kernel_y, kernel_x, in).");

    nb::exception<rbnn::Invalid>(m, "Invalid", PyExc_ValueError);
    nb::register_exception_translator(translate_wrong_kernels);  // the last one is asked first
    nb::class_<rbnn::Program>(m, "Program", "A checked network, ready to run.")
        .def("__init__", &make_program, "buffers"_a, "operations"_a, "input"_a, "output"_a, "kernels"_a = "",
             // Written by hand: stubs leave the element type of arrays open.
             nb::sig("def __init__(self, buffers: list[tuple[str, int, int, int]], operations: list[tuple[object, ...]], "
                     "input: int, output: int, kernels: str = '') -> None"))
        .def("run", &run_program<Batch>, array("images"), "threads"_a, "Answers to images (N, C, H, W), as (N, C, H, W).")
        .def("run_bytes", &run_program<ByteBatch>, array("images"), "threads"_a,
             "The same for images that are not normalised, where the network takes bytes.")
        .def_prop_ro("takes_bytes", &rbnn::Program::takes_bytes)
        .def(
            "profile",
            [](const rbnn::Program& program, Batch image, int repeats, int threads) {
                check_batch(program, image, threads);
                if (image.shape(0) != 1) throw rbnn::Invalid("a profile takes one image");
                std::vector<double> seconds;
                {
                    rbnn::WithoutGil released;
                    rbnn::Call call([&] { return released.interrupted(); });
                    seconds = program.profile(image.data(), repeats, threads, call);
                    if (!call.stop()) return seconds;
                }
                throw nb::python_error();
            },
            array("image"), "repeats"_a, "threads"_a, "Seconds of each operation: the least of `repeats`.")
        .def("trace", &trace_program, array("image"), "given"_a,
             nb::sig("def trace(self, image: NDArray[numpy.float32], "
                     "given: dict[int, NDArray[numpy.float32]]) "
                     "-> dict[int, NDArray[numpy.float32]]"),
             "What each operation writes for one image, by buffer (height, width, channels), signs as +1 and -1; a buffer "
             "in `given` is overwritten before it is read.")
        .def_prop_ro("kernels", [](const rbnn::Program& program) { return program.kernels().name; })
        .def_prop_ro("arena_bytes", &rbnn::Program::arena_bytes);
    m.def(
        "kernels",
        [] {
            std::vector<std::pair<std::string, bool>> names;
            for (const rbnn::Kernels* kernels : rbnn::all_kernels()) names.emplace_back(kernels->name, kernels->supported());
            return names;
        },
        "Every kind of kernels compiled in, best first, and whether this machine can run it.");
    m.def("chosen_kernels", [] { return rbnn::find_kernels().name; },
          "Those that the environment's RBNN_KERNELS names, else the best that this machine can run.");
    m.def("popcount_limit", &popcount_limit, "kernels"_a, "seconds"_a = 0.2,
          "Multiply-adds per second of xor + popcount in registers alone.");
}
