// The module rbnn._core.  Only the files in this folder know Python.  They check arrays; the code below trusts
// pointers.
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
#include "bindings/training.h"
#include "bindings/without_gil.h"
#include "program/program.h"
#include "simd/dispatch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Images = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
// An array is used as it is or refused: a result written to a converted copy would be lost.
auto array(const char* name) { return nb::arg(name).noconvert(); }

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
                  const std::vector<SpecArguments>& operations, const std::vector<std::size_t>& inputs,
                  const std::vector<std::size_t>& outputs, const std::string& kernels) {
    std::vector<rbnn::Buffer> places;
    for (const BufferArguments& arguments : buffers) places.push_back(as_buffer(arguments));
    std::vector<rbnn::Spec> specs;
    for (const auto& [kind, name, read, written, tensors, numbers, words] : operations) {
        specs.push_back({kind, name, read, written, {}, numbers, words});
        for (const auto& [role, array] : tensors) specs.back().tensors.emplace(role, as_tensor(array));
    }
    const rbnn::Kernels& chosen = rbnn::find_kernels(kernels);
    bool interrupted = false;
    {
        rbnn::WithoutGil released;  // large weights take a while; the arguments keep their arrays
        rbnn::Call call([&] { return released.interrupted(); });
        try {
            new (self) rbnn::Program(std::move(places), specs, inputs, outputs, chosen, call);
        } catch (const rbnn::Interrupted&) {
            interrupted = true;
        }
    }
    if (interrupted) throw nb::python_error();
}

void check_threads(int threads) {
    if (threads < 1 || threads > 1024) throw rbnn::Invalid("threads must be 1 to 1024");
}

// Checks the arrays of a call and returns the values of each input of the network.
template <class Array>
auto check_batch(const rbnn::Program& program, const std::vector<Array>& images, int threads) {
    if (images.size() != program.inputs()) throw rbnn::Invalid("the network has another number of inputs");
    std::vector<decltype(images[0].data())> values;
    for (std::size_t i = 0; i < images.size(); ++i) {
        const rbnn::Buffer& in = program.input(i);
        const Array& array = images[i];
        if (array.shape(1) != in.channels || array.shape(2) != in.height || array.shape(3) != in.width)
            throw rbnn::Invalid("images have another shape than the network's input");
        if (array.shape(0) != images[0].shape(0)) throw rbnn::Invalid("inputs have different numbers of pictures");
        values.push_back(array.data());
    }
    check_threads(threads);
    return values;
}

using Answer = nb::ndarray<nb::numpy, float, nb::ndim<4>>;
using Answers = nb::typed<nb::list, Answer>;

// Writes the outputs of `count` images to `outs`, or throws.
template <class Values>
void run_into(const rbnn::Program& program, const Values& values, std::size_t count, const std::vector<float*>& outs,
              int threads) {
    rbnn::Outcome outcome;
    std::string overflow;
    {
        rbnn::WithoutGil released;
        rbnn::Call call([&] { return released.interrupted(); });
        outcome = program.run(values, count, outs, threads, call);
        if (outcome == rbnn::Outcome::overflowed) overflow = program.find_overflow(values, count, call);
        if (call.stopped()) outcome = rbnn::Outcome::interrupted;
    }
    if (outcome == rbnn::Outcome::interrupted) throw nb::python_error();
    if (outcome == rbnn::Outcome::image_not_finite) throw rbnn::Invalid(rbnn::kNotFinite);
    if (outcome == rbnn::Outcome::overflowed)
        throw rbnn::Invalid("operation " + overflow + ": its values are larger than a float holds");
    if (outcome == rbnn::Outcome::answer_not_finite)
        throw rbnn::Invalid("the network's answer is not finite: its numbers are too large");
}

// The common call: one input that the engine takes as it is, one output of at most `most_bytes`.  None if something is
// different.
nb::object run_one(const rbnn::Program& program, nb::handle images, int threads, std::size_t most_bytes) {
    check_threads(threads);
    Batch batch;
    if (program.inputs() != 1 || program.outputs() != 1 || !nb::try_cast(images, batch, false)) return nb::none();
    const rbnn::Buffer &in = program.input(0), &result = program.output(0);
    const std::size_t count = batch.shape(0);
    if (batch.shape(1) != in.channels || batch.shape(2) != in.height || batch.shape(3) != in.width) return nb::none();
    if (count > most_bytes / sizeof(float) / result.values()) return nb::none();
    auto* out = new float[count * result.values()];
    nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    run_into(program, rbnn::Floats{batch.data()}, count, {out}, threads);
    const std::size_t shape[] = {count, result.channels, result.height, result.width};
    const nb::ndarray<nb::numpy, float> answer(out, result.pixels() == 1 ? 2 : 4, shape, owner);
    return nb::cast(answer, nb::rv_policy::reference);
}

// Returns a list made by hand, because nanobind would copy the arrays of a vector.
template <class Array>
Answers run_program(const rbnn::Program& program, const std::vector<Array>& images, int threads) {
    const auto values = check_batch(program, images, threads);
    const std::size_t count = images[0].shape(0);
    std::vector<float*> outs;
    Answers answers;
    for (std::size_t i = 0; i < program.outputs(); ++i) {
        const rbnn::Buffer& result = program.output(i);
        outs.push_back(new float[count * result.values()]);
        nb::capsule owner(outs.back(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
        const Answer answer(outs.back(), {count, result.channels, result.height, result.width}, owner);
        answers.append(nb::cast(answer, nb::rv_policy::reference));
    }
    run_into(program, values, count, outs, threads);
    return answers;
}

using Picture = nb::ndarray<nb::numpy, float, nb::ndim<3>>;
using GivenPicture = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

std::map<std::size_t, Picture> trace_program(const rbnn::Program& program, const std::vector<Batch>& image,
                                             const std::map<std::size_t, GivenPicture>& given) {
    const rbnn::Floats images = check_batch(program, image, 1);
    if (image[0].shape(0) != 1) throw rbnn::Invalid("a trace takes one image");
    std::map<std::size_t, const float*> values;
    for (const auto& [index, picture] : given) {
        const auto& buffers = program.buffers();
        if (index >= buffers.size() ||
            !buffers[index].same_shape({buffers[index].type, picture.shape(0), picture.shape(1), picture.shape(2)}))
            throw rbnn::Invalid("a given picture has another shape than its buffer");
        values.emplace(index, picture.data());
    }
    std::map<std::size_t, std::vector<float>> seen;
    bool stopped;
    {
        rbnn::WithoutGil released;
        rbnn::Call call([&] { return released.interrupted(); });
        seen = program.trace(images, values, call);
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

// Multiply-adds per second of xor + popcount in registers alone: the best of several runs, which take `seconds`
// together.
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

// The name of kernels comes from the user, so rbnn's own exceptions refuse it, in training and in a session.
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
    nb::set_leak_warnings(false);  // a daemon thread keeps its objects when the interpreter ends
    m.doc() = "Bits and fused training kernels: the compiled part of rbnn.";
    m.def("pack_bits", &pack_bits, array("values"),
          "Rows of floats as rows of 64-bit words: bit 1 for values > 0, lowest bit first, tail bits 0.");

    rbnn::bind_training(m);

    nb::exception<rbnn::Invalid>(m, "Invalid", PyExc_ValueError);
    nb::register_exception_translator(translate_wrong_kernels);  // the last one registered comes first
    nb::class_<rbnn::Program>(m, "Program", "A checked network, ready to run.")
        .def("__init__", &make_program, "buffers"_a, "operations"_a, "inputs"_a, "outputs"_a, "kernels"_a = "",
             // Written by hand, because stubs leave the element type of arrays open.
             nb::sig("def __init__(self, buffers: list[tuple[str, int, int, int]], "
                     "operations: list[tuple[object, ...]], inputs: list[int], outputs: list[int], "
                     "kernels: str = '') -> None"))
        .def("run", &run_program<Batch>, array("images"), "threads"_a,
             nb::sig("def run(self, images: list[NDArray[numpy.float32]], threads: int) "
                     "-> list[NDArray[numpy.float32]]"),
             "Answers to images (N, C, H, W), one array for each input, as (N, C, H, W): one for each output.")
        .def("run_one", &run_one, "images"_a, "threads"_a, "most_bytes"_a,
             nb::sig("def run_one(self, images: object, threads: int, most_bytes: int) "
                     "-> NDArray[numpy.float32] | None"),
             "The output for one array of images (N, C, H, W), as (N, C) if it is a vector.  None if the network has "
             "several inputs or outputs, if the array is not as the engine takes it, or if the output has more bytes.")
        .def("run_bytes", &run_program<ByteBatch>, array("images"), "threads"_a,
             nb::sig("def run_bytes(self, images: list[NDArray[numpy.uint8]], threads: int) "
                     "-> list[NDArray[numpy.float32]]"),
             "The same for images that are not normalised, where the network takes bytes.")
        .def_prop_ro("takes_bytes", &rbnn::Program::takes_bytes)
        .def(
            "profile",
            [](const rbnn::Program& program, const std::vector<Batch>& image, int repeats, int threads) {
                const rbnn::Floats values = check_batch(program, image, threads);
                if (image[0].shape(0) != 1) throw rbnn::Invalid("a profile takes one image");
                std::vector<double> seconds;
                {
                    rbnn::WithoutGil released;
                    rbnn::Call call([&] { return released.interrupted(); });
                    seconds = program.profile(values, repeats, threads, call);
                    if (!call.stop()) return seconds;
                }
                throw nb::python_error();
            },
            array("image"), "repeats"_a, "threads"_a,
            nb::sig("def profile(self, image: list[NDArray[numpy.float32]], repeats: int, threads: int) "
                    "-> list[float]"),
            "Seconds of each operation: the least of `repeats`.")
        .def("trace", &trace_program, array("image"), "given"_a,
             nb::sig("def trace(self, image: list[NDArray[numpy.float32]], "
                     "given: dict[int, NDArray[numpy.float32]]) "
                     "-> dict[int, NDArray[numpy.float32]]"),
             "What each operation writes for one image, by buffer (height, width, channels), signs as +1 and -1; a "
             "buffer in `given` is overwritten before it is read.")
        .def_prop_ro("kernels", [](const rbnn::Program& program) { return program.kernels().name; })
        .def_prop_ro("arena_bytes", &rbnn::Program::arena_bytes);
    m.def(
        "kernels",
        [] {
            std::vector<std::pair<std::string, bool>> names;
            for (const rbnn::Kernels* kernels : rbnn::all_kernels())
                names.emplace_back(kernels->name, kernels->supported());
            return names;
        },
        "Every kind of kernels compiled in, best first, and whether this machine can run it.");
    m.def("chosen_kernels", [] { return rbnn::find_kernels().name; },
          "Those that the environment's RBNN_KERNELS names, else the best that this machine can run.");
    m.def("popcount_limit", &popcount_limit, "kernels"_a, "seconds"_a = 0.2,
          "Multiply-adds per second of xor + popcount in registers alone.");
}
