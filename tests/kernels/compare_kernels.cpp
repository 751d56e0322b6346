// Every kind of kernels that this machine runs against the portable ones, on random shapes.  No Python: so that it can be
// cross-compiled and emulated, and run under sanitizers.  Usage: compare_kernels [rounds]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "dispatch.h"
#include "program.h"

namespace {

using rbnn::Buffer;
using rbnn::Spec;
using rbnn::Tensor;

std::mt19937 random_numbers(1);

std::size_t any(std::size_t low, std::size_t high) {
    return std::uniform_int_distribution<std::size_t>(low, high)(random_numbers);
}

std::vector<float> floats(std::size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = any(0, 9) == 0 ? 0.0f : normal(random_numbers);
    return values;
}

struct Case {
    std::vector<Buffer> buffers;
    std::vector<Spec> specs;
    std::vector<float> weight, scale, shift, zero;
    std::vector<std::uint8_t> signs;
    std::vector<std::int8_t> whole;
    bool exact;

    Case(const Case&) = delete;
    Case() {
        const std::size_t kind = any(0, 4);
        const bool bytes_in = kind == 0, bits_in = kind > 1;  // else floats
        exact = bytes_in || bits_in;
        const std::size_t channels = any(1, bytes_in ? 20 : 140), outputs = any(1, 140);
        std::vector<double> kernel, stride, padding, dilation;
        std::size_t size[2], result[2];
        for (int i = 0; i < 2; ++i) {
            const std::size_t k = any(1, exact ? 7 : 4), d = any(1, 2), p = any(0, 5), s = any(1, 3), reach = d * (k - 1) + 1;
            size[i] = (reach > 2 * p ? reach - 2 * p : 1) + any(0, 6);
            result[i] = (size[i] + 2 * p - reach) / s + 1;
            kernel.push_back(static_cast<double>(k)), stride.push_back(static_cast<double>(s));
            padding.push_back(static_cast<double>(p)), dilation.push_back(static_cast<double>(d));
        }
        const auto kh = static_cast<std::size_t>(kernel[0]), kw = static_cast<std::size_t>(kernel[1]);
        constexpr auto kFloats = Buffer::Type::floats, kBits = Buffer::Type::bits, kBytes = Buffer::Type::bytes;
        buffers = {{kFloats, size[0], size[1], channels}, {bytes_in ? kBytes : kBits, size[0], size[1], channels},
                   {kFloats, result[0], result[1], outputs}, {kBits, result[0], result[1], outputs},
                   {kFloats, result[0], result[1], 1}, {kFloats, result[0], result[1], outputs + 1}};
        scale = floats(outputs), shift = floats(outputs);
        Spec conv{bytes_in ? "int8_conv" : bits_in ? "binary_conv" : "float_conv", "conv", {{"x", exact ? 1u : 0u}}, {{"float", 2}, {"bits", 3}}, {},
                  {{"kernel", kernel}, {"stride", stride}, {"padding", padding}, {"dilation", dilation},
                   {"activation", {-1.0, 1.0}}}, {{"activation", "hardtanh"}}};
        const std::size_t bytes = (channels + 7) / 8;
        if (bytes_in) {
            whole.resize(outputs * kh * kw * channels);
            for (std::int8_t& value : whole) value = static_cast<std::int8_t>(any(0, 255));
            conv.tensors.emplace("weight", Tensor{Tensor::Type::int8, {outputs, kh, kw, channels}, whole.data()});
            zero = floats(channels);
            conv.tensors.emplace("zero", Tensor{Tensor::Type::float32, {channels}, zero.data()});
        } else if (bits_in) {
            signs.resize(outputs * kh * kw * bytes);
            for (std::size_t i = 0; i < signs.size(); ++i) {
                signs[i] = static_cast<std::uint8_t>(any(0, 255));
                if (i % bytes == bytes - 1 && channels % 8 != 0)
                    signs[i] = static_cast<std::uint8_t>(signs[i] & ((1u << channels % 8) - 1));
            }
            conv.tensors.emplace("weight", Tensor{Tensor::Type::uint8, {outputs, kh, kw, bytes}, signs.data()});
        } else {
            weight = floats(outputs * kh * kw * channels);
            conv.tensors.emplace("weight", Tensor{Tensor::Type::float32, {outputs, kh, kw, channels}, weight.data()});
        }
        conv.tensors.emplace("scale", Tensor{Tensor::Type::float32, {outputs}, scale.data()});
        conv.tensors.emplace("shift", Tensor{Tensor::Type::float32, {outputs}, shift.data()});
        // The signs come out as one number per pixel: their product with random signs.
        unit_.resize((outputs + 7) / 8);
        for (std::size_t i = 0; i < outputs; ++i) unit_[i / 8] = static_cast<std::uint8_t>(unit_[i / 8] | any(0, 1) << i % 8);
        Spec digest{"binary_conv", "digest", {{"x", 3}}, {{"float", 4}}, {}, {{"kernel", {1.0, 1.0}}}, {}};
        digest.tensors.emplace("weight", Tensor{Tensor::Type::uint8, {1, 1, 1, unit_.size()}, unit_.data()});
        Spec first{"pack", "pack", {{"x", 0}}, {{"bits", 1}}, {}, {}, {{"level", any(0, 1) ? "mean" : ""}}};
        if (bytes_in) {
            to_bytes_.assign(channels, 90.0f);
            first = Spec{"quantize", "quantize", {{"x", 0}}, {{"bytes", 1}}, {}, {}, {}};
            for (const char* role : {"scale", "shift"})
                first.tensors.emplace(role, Tensor{Tensor::Type::float32, {channels}, to_bytes_.data()});
        }
        specs = {first, conv, digest,
                 Spec{"concat", "both", {{"x0", 2}, {"x1", 4}}, {{"float", 5}}, {}, {}, {}}};
    }

private:
    std::vector<std::uint8_t> unit_;
    std::vector<float> to_bytes_;
};

}  // namespace

int main(int count, char** words) {
    const int rounds = count > 1 ? std::atoi(words[1]) : 200;
    int compared = 0;
    for (int round = 0; round < rounds; ++round) {
        const Case test;
        const std::vector<float> images = floats(2 * test.buffers[0].values());
        const std::size_t results = 2 * test.buffers[5].values();
        std::vector<float> wanted(results), got(results);
        rbnn::Program(test.buffers, test.specs, 0, 5, rbnn::kernels_portable).run(images.data(), 2, wanted.data(), 1);
        for (const rbnn::Kernels* kernels : rbnn::all_kernels()) {
            if (!kernels->supported()) continue;
            const rbnn::Program program(test.buffers, test.specs, 0, 5, *kernels);
            for (const int threads : {1, 3}) {
                program.run(images.data(), 2, got.data(), threads);
                for (std::size_t i = 0; i < results; ++i) {
                    // The last channel counts signs: a float sum near 0 may have either.
                    const bool digest = i / test.buffers[5].pixels() % test.buffers[5].channels == test.buffers[5].channels - 1;
                    const float allowed = test.exact ? 0.0f : (digest ? 1e9f : 1e-3f);
                    if (!(std::fabs(got[i] - wanted[i]) <= allowed)) {
                        std::printf("round %d, %s: %g instead of %g\n", round, kernels->name, got[i], wanted[i]);
                        return 1;
                    }
                }
                ++compared;
            }
        }
    }
    std::printf("%d comparisons:", compared);
    for (const rbnn::Kernels* kernels : rbnn::all_kernels())
        if (kernels->supported()) std::printf(" %s", kernels->name);
    std::printf("\n");
    return 0;
}
