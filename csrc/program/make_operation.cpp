#include "program/make_operation.h"

#include <algorithm>
#include <cmath>

#include "ops/operations.h"
#include "program/without_weights.h"

namespace rbnn {
namespace {

// Activations without parameters.
const std::map<std::string, Activation> kPlain{
    {"sigmoid", Activation::sigmoid}, {"hardswish", Activation::hardswish},     {"abs", Activation::abs},
    {"selu", Activation::selu},       {"gelu", Activation::gelu},               {"gelu_tanh", Activation::gelu_tanh},
    {"silu", Activation::silu},       {"tanh", Activation::tanh},               {"mish", Activation::mish},
    {"exp", Activation::exp},         {"hardsigmoid", Activation::hardsigmoid},
};

ActivationParameters read_activation(const Reader& reader, std::size_t channels) {
    ActivationParameters result;
    const std::string name = reader.word("activation", "");
    std::vector<double> numbers;
    if (const auto found = reader.spec.numbers.find("activation"); found != reader.spec.numbers.end())
        numbers = found->second;
    const auto expect = [&](std::size_t count) {
        require(numbers.size() == count, "an activation has the wrong count of numbers");
        for (const double number : numbers)
            require(std::fabs(number) < 3e38, "an activation's number is not finite");
    };
    if (name == "hardtanh") {
        expect(2);
        result.low = static_cast<float>(numbers[0]);
        result.high = static_cast<float>(numbers[1]);
        require(result.low <= result.high, "hardtanh has low above high");
        return result;
    }
    if (name == "leaky_relu" || name == "elu" || name == "power") {
        expect(1);
        result.activation =
            name == "elu" ? Activation::elu : name == "power" ? Activation::power : Activation::leaky_relu;
        result.low = static_cast<float>(numbers[0]);
        return result;
    }
    if (name == "softplus") {
        expect(2);
        require(numbers[0] >= 1e-6 && numbers[0] <= 1e6 && std::fabs(numbers[1]) <= 700.0,
                "softplus has impossible numbers");
        result.activation = Activation::softplus;
        result.low = static_cast<float>(numbers[0]);
        result.high = static_cast<float>(numbers[1]);
        return result;
    }
    expect(0);
    if (name == "relu" || name == "relu6") {
        result.low = 0.0f;
        if (name == "relu6") result.high = 6.0f;
    } else if (name == "prelu") {
        result.activation = Activation::prelu;
        require(reader.has_tensor("slope"), "prelu has no tensor slope");
        result.slope = reader.channel_values("slope", channels, 0.0f);
    } else if (const auto found = kPlain.find(name); found != kPlain.end()) {
        result.activation = found->second;
    } else {
        require(name.empty(), "unknown activation");
    }
    return result;
}

FinishParameters read_finish(const Reader& reader, const Geometry& geometry) {
    const std::size_t channels = reader.out_channels();
    FinishParameters finish{channels,
                            reader.channel_values("scale", channels, 1.0f),
                            reader.channel_values("shift", channels, 0.0f),
                            reader.channel_values("level", channels, 0.0f),
                            {},
                            read_activation(reader, channels)};
    if (reader.has_output("float")) finish.out = &reader.output("float");
    if (reader.has_output("bits")) finish.bits = &reader.output("bits", Buffer::Type::bits);
    if (reader.has_input("residual")) finish.residual = &reader.input("residual");
    require(finish.out || finish.bits, "writes nothing");
    for (const Buffer* buffer : {finish.out, finish.bits, finish.residual})
        require(!buffer || buffer->same_shape({buffer->type, geometry.y.count, geometry.x.count, channels}),
                "a buffer has the wrong shape");
    if (reader.has_tensor("threshold")) {
        require(reader.spec.kind == "binary_conv", "only a binary convolution has a threshold");
        require(finish.bits && !finish.out && !finish.residual, "a threshold writes bits alone");
        for (const char* role : {"scale", "shift", "level", "slope"})
            require(!reader.has_tensor(role), "a threshold replaces scale, shift, level and slope");
        require(reader.word("activation", "").empty(), "a threshold replaces the activation");
        const auto* data = reader.data<std::int32_t>("threshold", {channels});
        finish.threshold.assign(finish.scale.size(), 0);
        std::copy(data, data + channels, finish.threshold.begin());
    }
    return finish;
}

Made read_convolution(const Reader& reader, const Kernels& kernels, Kept& kept) {
    const std::string& kind = reader.spec.kind;
    const Buffer& in = reader.input("x", kind == "binary_conv" ? Buffer::Type::bits
                                         : kind == "int8_conv" ? Buffer::Type::bytes
                                                               : Buffer::Type::floats);
    const Geometry geometry = read_geometry(reader, in, false);
    const ConvolutionParameters p{kernels, in, geometry, read_finish(reader, geometry), kept};
    const std::size_t outputs = p.finish.channels, kh = geometry.y.kernel, kw = geometry.x.kernel;
    if (kind == "int8_conv")
        return make_int8_conv(p, reader.data<std::int8_t>("weight", {outputs, kh, kw, in.channels}),
                              reader.channel_values("zero", in.channels, 0.0f));
    const std::size_t groups = reader.whole("groups", 1, 1, kLargestChannels, {1})[0];
    require(in.channels % groups == 0 && outputs % groups == 0, "groups do not divide the channels");
    if (kind == "binary_conv") {
        const std::size_t each = in.channels / groups;
        const auto* weight = reader.data<std::uint8_t>("weight", {outputs, kh, kw, (each + 7) / 8});
        expect_no_more_bits(weight, outputs * kh * kw, each, "the weight has bits beyond its channels");
        const bool zero_padding = reader.number("pad", 0.0) == 0.0;
        if (groups == 1) return make_binary_conv(p, weight, zero_padding);
        return make_grouped_binary_conv(p, weight, zero_padding, groups);
    }
    const std::vector<std::size_t> shape{outputs, kh, kw, in.channels / groups};
    // Weights stored as int8 take a quarter of the space in the file; here they become floats like any others.
    if (reader.spec.tensors.at("weight").type == Tensor::Type::int8)
        return make_float_conv(p, reader.data<std::int8_t>("weight", shape), groups);
    return make_float_conv(p, reader.data<float>("weight", shape), groups);
}

// An operation whose output has the shape of its input.
Made read_elementwise(const Reader& reader, const Kernels& k) {
    const std::string& kind = reader.spec.kind;
    const Buffer& in = reader.input("x");
    const Buffer& out = kind == "pack"       ? reader.output("bits", Buffer::Type::bits)
                        : kind == "quantize" ? reader.output("bytes", Buffer::Type::bytes)
                                             : reader.output("float");
    expect_shape(out, in.height, in.width, in.channels);
    if (kind == "activation") {
        require(!reader.word("activation", "").empty(), "has no activation");
        return make_activation(k, in, out, read_activation(reader, in.channels));
    }
    const auto values = [&](const char* role, float fill) { return reader.channel_values(role, in.channels, fill); };
    if (kind == "pack") {
        const std::string level = reader.word("level", "");
        if (level == "mean") return make_pack_at_mean(k, in, out);
        require(level.empty(), "unknown level");
        const std::vector<float> levels = values("level", static_cast<float>(reader.number("level", 0.0)));
        if (!reader.has_tensor("scale") && !reader.has_tensor("shift")) return make_pack(k, in, out, {}, {}, levels);
        return make_pack(k, in, out, values("scale", 1.0f), values("shift", 0.0f), levels);
    }
    require(reader.has_tensor("scale") && reader.has_tensor("shift"), "has no scale or shift");
    return (kind == "quantize" ? make_quantize : make_affine)(k, in, out, values("scale", 1.0f), values("shift", 0.0f));
}

Made read_operation(const Reader& reader, const Kernels& k, Kept& kept) {
    const std::string& kind = reader.spec.kind;
    const auto is = [&](std::initializer_list<const char*> kinds) {
        return std::any_of(kinds.begin(), kinds.end(), [&](const char* each) { return kind == each; });
    };
    if (is({"binary_conv", "float_conv", "int8_conv"})) return read_convolution(reader, k, kept);
    if (is({"pack", "quantize", "affine", "activation"})) return read_elementwise(reader, k);
    Made made = read_without_weights(reader, k, kept);
    require(made != nullptr, "unknown kind");
    return made;
}

}  // namespace

Made make_operation(const Spec& spec, const std::vector<Buffer>& buffers, const Kernels& kernels, Kept& kept) {
    try {
        const Reader reader(spec, buffers);
        Made made = read_operation(reader, kernels, kept);
        reader.all_outputs_known();
        return made;
    } catch (const Invalid& invalid) {
        throw Invalid("operation '" + spec.name + "' (" + spec.kind + "): " + invalid.what());
    }
}

}  // namespace rbnn
