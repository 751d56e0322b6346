// Decode bytes into buffers, operations and tensors, validate them with the engine, and run what it accepts.  For
// libFuzzer, or with -DREPLAY as a program that replays a corpus file.  encode.py writes the same bytes from a graph.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "simd/dispatch.h"
#include "program/program.h"

namespace {

using rbnn::Buffer;
using rbnn::Spec;
using rbnn::Tensor;

constexpr const char* kKinds[] = {
    "float_conv", "binary_conv", "pack", "affine", "activation", "max_pool", "avg_pool", "max_pool_bits",
    "adaptive_max_pool", "adaptive_avg_pool", "mean", "add", "multiply", "concat", "reshape", "slice", "pad",
    "constant", "int8_conv", "quantize", "no such kind", "reduce", "softmax", "standardize", "local_norm", "divide",
    "maximum", "minimum", "matmul", "permute", "resize", "select"};
constexpr const char* kRoles[] = {
    "x", "residual", "a", "b", "x0", "x1", "x2", "float", "bits", "weight", "scale", "shift", "slope", "level",
    "threshold", "invert", "value", "kernel", "stride", "padding", "dilation", "groups", "activation", "pad", "ceil",
    "count_padding", "size", "over", "order", "start", "stop", "step", "before", "after", "bytes", "zero",
    "no such role", "how", "log", "eps", "window", "alpha", "beta", "k", "axis", "sides", "mode", "align", "places"};
constexpr const char* kWords[] = {
    "hardtanh", "relu", "relu6", "leaky_relu", "prelu", "sigmoid", "hardswish", "abs", "mean", "hw", "c", "chw", "hwc",
    "", "no such word", "elu", "selu", "gelu", "gelu_tanh", "silu", "softplus", "tanh", "hardsigmoid", "mish", "exp",
    "power", "h", "w", "hc", "wc", "hwc", "sum", "max", "min", "nearest", "nearest_exact", "bilinear", "bicubic",
    "constant", "reflect", "replicate", "circular"};
constexpr double kOdd[] = {256, 1024, 1025, 16384, 16385, 1048576, 1048577, 134217728, 2147483648.0, 4294967296.0,
                           9.3e18, -1, 0.5, 1e300, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()};
constexpr std::size_t kTwoBytes = 255 - std::size(kOdd);  // a two-byte number follows
constexpr std::size_t kMostValues = 1 << 15;  // larger networks are valid too, but slow

constexpr std::size_t kSecondOutput = 128;    // the byte that chooses kernels is at least this if a second output follows
constexpr std::size_t kSecondInput = 64;      // and has this bit if a second input follows

struct TooLarge {};

std::size_t run_on_floats = 0, run_on_bytes = 0;

class Decoder {
public:
    Decoder(const std::uint8_t* data, std::size_t size) : data_(data), end_(data + size) {}

    std::uint8_t byte() { return data_ < end_ ? *data_++ : 0; }
    std::size_t below(std::size_t count) { return byte() % count; }
    double number() {
        const std::size_t b = byte();
        if (b == kTwoBytes) {
            const std::size_t low = byte();
            return static_cast<double>(low + 256u * byte());
        }
        return b > kTwoBytes ? kOdd[b - kTwoBytes - 1] : static_cast<double>(b);
    }
    std::size_t whole() {
        const double value = number();
        return value >= 0 && value < 1.8e19 ? static_cast<std::size_t>(value) : std::numeric_limits<std::size_t>::max();
    }
    template <std::size_t N>
    std::string word(const char* const (&table)[N]) { return table[below(N)]; }

    Tensor tensor(std::vector<std::vector<std::uint8_t>>& memory) {
        constexpr Tensor::Type kTypes[] = {Tensor::Type::float32, Tensor::Type::int32, Tensor::Type::uint8,
                                           Tensor::Type::int8};
        Tensor tensor{kTypes[below(4)], {}, nullptr};
        const bool bytewise = tensor.type == Tensor::Type::uint8 || tensor.type == Tensor::Type::int8;
        double count = 1;
        for (std::size_t rank = below(6); rank > 0; --rank) {
            tensor.shape.push_back(whole());
            count *= static_cast<double>(tensor.shape.back());
        }
        // The bytes of a tensor always exist: a file cannot declare more than it has.
        if (count > 2 * kMostValues) throw TooLarge{};
        const std::uint8_t pattern = byte();
        const auto values = static_cast<std::size_t>(count);
        memory.emplace_back(values * (bytewise ? 1 : 4));
        std::vector<std::uint8_t>& bytes = memory.back();
        std::uint32_t state = pattern * 2654435761u + 1;
        for (std::size_t i = 0; i < values; ++i) {
            state = state * 1664525u + 1013904223u;
            if (bytewise) {
                bytes[i] = static_cast<std::uint8_t>((state >> 24) & (0xffu >> pattern % 8));
            } else if (tensor.type == Tensor::Type::int32) {
                const auto value = static_cast<std::int32_t>(pattern == 255 ? state : (state >> 24)) - 128;
                std::memcpy(bytes.data() + 4 * i, &value, 4);
            } else {
                float value = static_cast<float>(static_cast<std::int32_t>(state >> 16) - 32768) / 8192.0f;
                if (pattern == 255) value = std::numeric_limits<float>::quiet_NaN();
                if (pattern == 254) value *= 1e38f;
                std::memcpy(bytes.data() + 4 * i, &value, 4);
            }
        }
        tensor.data = bytes.data();
        return tensor;
    }

private:
    const std::uint8_t *data_, *end_;
};

bool possible(const Buffer& b) {
    return b.height - 1 < rbnn::kLargestSide && b.width - 1 < rbnn::kLargestSide &&
           b.channels - 1 < rbnn::kLargestChannels;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Decoder in(data, size);
    std::vector<std::vector<std::uint8_t>> memory;
    std::vector<Buffer> buffers;
    std::vector<Spec> specs;
    double values = 0;
    bool all_possible = true;
    for (std::size_t count = in.below(24); count > 0; --count) {
        const auto type = static_cast<Buffer::Type>(in.below(3));
        const std::size_t height = in.whole(), width = in.whole(), channels = in.whole();
        buffers.push_back({type, height, width, channels});
        all_possible = all_possible && possible(buffers.back());
        values += static_cast<double>(height) * static_cast<double>(width) * static_cast<double>(channels);
    }
    if (all_possible && values > kMostValues) return -1;
    std::vector<std::size_t> inputs{in.whole()};
    std::vector<std::size_t> outputs{in.whole()};
    const auto& kinds_of_kernels = rbnn::all_kernels();
    const std::size_t chosen = in.byte();
    const rbnn::Kernels* kernels = kinds_of_kernels[chosen % kSecondInput % kinds_of_kernels.size()];
    if (chosen >= kSecondOutput) outputs.push_back(in.whole());
    if (chosen % kSecondOutput >= kSecondInput) inputs.push_back(in.whole());
    if (!kernels->supported()) kernels = &rbnn::kernels_portable;
    try {
        for (std::size_t count = in.below(16); count > 0; --count) {
            Spec spec;
            spec.kind = in.word(kKinds);
            spec.name = "operation";
            for (std::size_t i = in.below(5); i > 0; --i) {
                std::string role = in.word(kRoles);
                spec.inputs[role] = in.whole();
            }
            for (std::size_t i = in.below(4); i > 0; --i) {
                std::string role = in.word(kRoles);
                spec.outputs[role] = in.whole();
            }
            for (std::size_t i = in.below(7); i > 0; --i) {
                std::string role = in.word(kRoles);
                spec.tensors[role] = in.tensor(memory);
            }
            for (std::size_t i = in.below(8); i > 0; --i) {
                std::vector<double>& numbers = spec.numbers[in.word(kRoles)];
                for (std::size_t n = in.below(10); n > 0; --n) numbers.push_back(in.number());
            }
            for (std::size_t i = in.below(4); i > 0; --i) {
                std::string role = in.word(kRoles);
                spec.words[role] = in.word(kWords);
            }
            specs.push_back(std::move(spec));
        }
        rbnn::Call call;
        const rbnn::Program program(buffers, specs, inputs, outputs, *kernels, call);
        // Tensors are freed here, so that a later read is a use after free.
        memory.clear();
        if (program.arena_bytes() > (std::size_t{1} << 24)) return 0;
        const int threads = 1 + static_cast<int>(in.below(2));
        std::vector<std::vector<float>> answers;
        std::vector<float*> outs;
        for (std::size_t i = 0; i < program.outputs(); ++i) answers.emplace_back(2 * program.output(i).values());
        for (std::vector<float>& answer : answers) outs.push_back(answer.data());
        std::vector<std::vector<float>> images;
        rbnn::Floats pictures;
        for (std::size_t i = 0; i < program.inputs(); ++i) {
            images.emplace_back(2 * program.input(i).values());
            for (std::size_t v = 0; v < images[i].size(); ++v) images[i][v] = static_cast<float>(v % 7) - 3.0f;
            pictures.push_back(images[i].data());
        }
        program.run(pictures, 2, outs, threads, call);
        ++run_on_floats;
        if (program.takes_bytes()) {
            std::vector<std::uint8_t> bytes(images[0].size());
            for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37);
            program.run(rbnn::Bytes{bytes.data()}, 2, outs, threads, call);
            ++run_on_bytes;
        }
    } catch (const rbnn::Invalid&) {
    } catch (const TooLarge&) {
        return -1;
    }
    return 0;
}

#ifdef REPLAY
// A corpus is one file: each input follows its length in two bytes, low byte first.
int main(int, char** words) {
    std::ifstream file(words[1], std::ios::binary);
    const std::vector<char> all((std::istreambuf_iterator<char>(file)), {});
    std::size_t inputs = 0;
    for (std::size_t at = 0; at + 2 <= all.size(); ++inputs) {
        const std::size_t size = static_cast<std::uint8_t>(all[at]) + 256u * static_cast<std::uint8_t>(all[at + 1]);
        const std::vector<char> one(all.begin() + static_cast<std::ptrdiff_t>(at + 2),
                                    all.begin() + static_cast<std::ptrdiff_t>(at + 2 + size));
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(one.data()), size);
        at += 2 + size;
    }
    std::printf("%zu inputs, %zu run, %zu on bytes\n", inputs, run_on_floats, run_on_bytes);
    return inputs == 0;
}
#endif
