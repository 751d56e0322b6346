// Compare the kernels of every instruction set of this machine with the portable ones on random shapes.  Without
// Python, so that it can be cross-compiled, emulated and run under sanitizers.  Usage: compare_kernels [rounds]
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>

#include "program/program.h"
#include "random_values.h"
#include "simd/dispatch.h"

namespace {

using rbnn::Buffer;
using rbnn::Spec;
using rbnn::Tensor;

enum Loop { kBinary, kFloat, kFloatFours, kInt8, kInt8Fours, kLoops };
constexpr const char* kLoopNames[kLoops] = {"binary_conv", "float_conv", "float_four_rows", "int8_conv",
                                            "int8_four_rows"};

// Kernels that count the calls of each inner loop; one at a time.
struct Watched {
    explicit Watched(const rbnn::Kernels& kernels) : real(kernels), kernels(kernels) {
        using namespace rbnn;
        this->kernels.binary_conv = count<kBinary, BinaryConv, &Kernels::binary_conv>;
        this->kernels.float_conv = count<kFloat, FloatConv, &Kernels::float_conv>;
        this->kernels.float_four_rows = count<kFloatFours, FourRows<FloatConv>, &Kernels::float_four_rows>;
        this->kernels.int8_conv = count<kInt8, Int8Conv, &Kernels::int8_conv>;
        this->kernels.int8_four_rows = count<kInt8Fours, FourRows<Int8Conv>, &Kernels::int8_four_rows>;
    }

    template <Loop kLoop, class Job, void (*rbnn::Kernels::*kReal)(const Job&, std::size_t, std::size_t, std::size_t)>
    static void count(const Job& job, std::size_t block, std::size_t first, std::size_t last) {
        ++now->calls[kLoop];
        (now->real.*kReal)(job, block, first, last);
    }

    // Whether every loop that these kernels use has run.
    bool all_called() const {
        for (int loop = 0; loop < kLoops; ++loop) {
            if (loop == kInt8Fours && real.int8_bytes != sizeof(std::int16_t)) continue;
            if (calls[loop] > 0) continue;
            std::printf("%s: no call of %s\n", real.name, kLoopNames[loop]);
            return false;
        }
        return true;
    }

    const rbnn::Kernels& real;
    rbnn::Kernels kernels;
    std::atomic<int> calls[kLoops] = {};
    static inline Watched* now = nullptr;
};

// One case in five uses bytes, one floats, two bits, and one is a stem of bytes or floats, which is computed four rows
// at a time.
struct Case {
    std::vector<Buffer> buffers;
    std::vector<Spec> specs;
    std::vector<float> weight, scale, shift, zero;
    std::vector<std::uint8_t> signs;
    std::vector<std::int8_t> whole;
    std::vector<std::int32_t> threshold;
    bool exact;
    std::size_t result;  // the output buffer

    Case(const Case&) = delete;
    explicit Case(std::size_t round) {
        const std::size_t kind = round % 5;
        const bool stem = kind == 4, bytes_in = kind == 0 || (stem && round / 5 % 2 == 1),
                   bits_in = kind == 2 || kind == 3;
        const bool by_threshold = bits_in && round / 5 % 3 == 0, add = !by_threshold && any(0, 1) == 1;
        const bool prelu = !by_threshold && any(0, 1) == 1;
        exact = bytes_in || bits_in;
        const std::size_t channels = stem ? any(3, 8) : any(1, bytes_in ? 20 : 140), outputs = any(1, stem ? 40 : 140);
        std::vector<double> kernel, stride, padding, dilation;
        std::size_t size[2], count[2];
        for (int i = 0; i < 2; ++i) {
            const std::size_t k = stem ? 7 : any(1, exact ? 7 : 4), d = stem ? 1 : any(1, 2), p = any(0, 5);
            const std::size_t s = any(1, stem ? 2 : 3), reach = d * (k - 1) + 1;
            size[i] = (reach > 2 * p ? reach - 2 * p : 1) + any(0, 6);
            if (stem && i == 0) size[i] += 8 * s;  // at least nine output rows
            count[i] = (size[i] + 2 * p - reach) / s + 1;
            kernel.push_back(static_cast<double>(k)), stride.push_back(static_cast<double>(s));
            padding.push_back(static_cast<double>(p)), dilation.push_back(static_cast<double>(d));
        }
        const auto kh = static_cast<std::size_t>(kernel[0]), kw = static_cast<std::size_t>(kernel[1]);
        constexpr auto kFloats = Buffer::Type::floats, kBits = Buffer::Type::bits, kBytes = Buffer::Type::bytes;
        buffers = {{kFloats, size[0], size[1], channels}, {bytes_in ? kBytes : kBits, size[0], size[1], channels},
                   {kFloats, count[0], count[1], outputs}, {kBits, count[0], count[1], outputs},
                   {kFloats, count[0], count[1], 1}, {kFloats, count[0], count[1], outputs + 1},
                   {kFloats, count[0], count[1], outputs}};
        scale = floats(outputs), shift = floats(outputs);
        Spec conv{bytes_in ? "int8_conv" : bits_in ? "binary_conv" : "float_conv",
                  "conv",
                  {{"x", exact ? 1u : 0u}},
                  {{"bits", 3}},
                  {},
                  {{"kernel", kernel}, {"stride", stride}, {"padding", padding}, {"dilation", dilation}},
                  {}};
        if (bits_in && any(0, 1) == 1) conv.numbers["pad"] = {-1.0};
        if (by_threshold) {
            for (std::size_t i = 0; i < outputs; ++i)
                threshold.push_back(static_cast<std::int32_t>(any(0, 2 * channels)) -
                                    static_cast<std::int32_t>(channels));
            conv.tensors.emplace("threshold", Tensor{Tensor::Type::int32, {outputs}, threshold.data()});
        } else {
            conv.outputs["float"] = 2;
            conv.tensors.emplace("scale", Tensor{Tensor::Type::float32, {outputs}, scale.data()});
            conv.tensors.emplace("shift", Tensor{Tensor::Type::float32, {outputs}, shift.data()});
            conv.words["activation"] = prelu ? "prelu" : "hardtanh";
            if (!prelu) conv.numbers["activation"] = {-1.0, 1.0};
            slope_ = floats(prelu ? outputs : 0);
            if (prelu) conv.tensors.emplace("slope", Tensor{Tensor::Type::float32, {outputs}, slope_.data()});
        }
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
        // The signs are output as one number per pixel: their product with random signs.
        unit_.resize((outputs + 7) / 8);
        for (std::size_t i = 0; i < outputs; ++i)
            unit_[i / 8] = static_cast<std::uint8_t>(unit_[i / 8] | any(0, 1) << i % 8);
        Spec digest{"binary_conv", "digest", {{"x", 3}}, {{"float", 4}}, {}, {{"kernel", {1.0, 1.0}}}, {}};
        digest.tensors.emplace("weight", Tensor{Tensor::Type::uint8, {1, 1, 1, unit_.size()}, unit_.data()});
        Spec first{"pack", "pack", {{"x", 0}}, {{"bits", 1}}, {}, {}, {{"level", any(0, 1) ? "mean" : ""}}};
        if (bytes_in) {
            to_bytes_.assign(channels, 90.0f);
            first = Spec{"quantize", "quantize", {{"x", 0}}, {{"bytes", 1}}, {}, {}, {}};
            for (const char* role : {"scale", "shift"})
                first.tensors.emplace(role, Tensor{Tensor::Type::float32, {channels}, to_bytes_.data()});
        }
        specs = {first};
        if (add) {  // nothing else reads it, so the sum overwrites it
            residual_ = floats(buffers[6].values());
            specs.push_back(Spec{"constant", "residual", {}, {{"float", 6}}, {}, {}, {}});
            specs.back().tensors.emplace(
                "value", Tensor{Tensor::Type::float32, {count[0], count[1], outputs}, residual_.data()});
            conv.inputs["residual"] = 6;
        }
        specs.insert(specs.end(), {conv, digest});
        if (!by_threshold) specs.push_back(Spec{"concat", "both", {{"x0", 2}, {"x1", 4}}, {{"float", 5}}, {}, {}, {}});
        result = by_threshold ? 4 : 5;
        for (const auto& [has, name] : {std::pair(by_threshold, "threshold"), std::pair(add, "residual"),
                                        std::pair(prelu, "prelu"), std::pair(conv.numbers.count("pad") != 0, "pad")})
            tried[name] += has;
    }

    static inline std::map<std::string, int> tried;

private:
    std::vector<std::uint8_t> unit_;
    std::vector<float> to_bytes_, slope_, residual_;
};

}  // namespace

int main(int count, char** words) {
    const std::size_t rounds = count > 1 ? std::strtoul(words[1], nullptr, 10) : 200;
    std::list<Watched> all;
    for (const rbnn::Kernels* kernels : rbnn::all_kernels())
        if (kernels->supported()) all.emplace_back(*kernels);
    int compared = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
        const Case test(round);
        const Buffer& result = test.buffers[test.result];
        const std::vector<float> images = floats(2 * test.buffers[0].values());
        std::vector<float> wanted(2 * result.values()), got(wanted.size());
        rbnn::Call call;
        rbnn::Program(test.buffers, test.specs, {0}, {test.result}, rbnn::kernels_portable, call)
            .run(rbnn::Floats{images.data()}, 2, {wanted.data()}, 1, call);
        float largest = 0.0f;
        for (const float value : wanted) largest = std::max(largest, std::fabs(value));
        for (Watched& watched : all) {
            Watched::now = &watched;
            const rbnn::Program program(test.buffers, test.specs, {0}, {test.result}, watched.kernels, call);
            for (const int threads : {1, 3}) {
                program.run(rbnn::Floats{images.data()}, 2, {got.data()}, threads, call);
                for (std::size_t i = 0; i < got.size(); ++i) {
                    // The last channel counts signs: a float sum near 0 may have either sign.
                    const bool digest = i / result.pixels() % result.channels == result.channels - 1;
                    const float allowed = test.exact ? 0.0f : digest ? 1e9f : 1e-3f + 2e-5f * largest;
                    if (!(std::fabs(got[i] - wanted[i]) <= allowed)) {
                        std::printf("round %zu, %s: %g instead of %g\n", round, watched.real.name, got[i], wanted[i]);
                        return 1;
                    }
                }
                ++compared;
            }
        }
    }
    for (const auto& [name, times] : Case::tried)
        if (times == 0) {
            std::printf("no case with %s\n", name.c_str());
            return 1;
        }
    std::printf("%d comparisons:", compared);
    for (const Watched& watched : all) {
        if (!watched.all_called()) return 1;
        std::printf(" %s", watched.real.name);
    }
    std::printf("\n");
    return 0;
}
