#include "program/make_operation.h"

#include <array>
#include <cmath>

#include "ops/operations.h"

namespace rbnn {
namespace {

Axis make_axis(std::size_t side, std::size_t kernel, std::size_t stride, std::size_t padding, std::size_t dilation, bool pool,
               bool ceil) {
    const std::size_t reach = dilation * (kernel - 1) + 1;
    require(!pool || 2 * padding <= kernel, "padding of a pool is at most half its kernel");
    require(side + 2 * padding >= reach, "the kernel does not fit into the picture");
    const std::size_t rest = side + 2 * padding - reach;
    std::size_t count = rest / stride + 1;
    // As in torch: the last window of a ceiled pool starts inside the picture or its left padding.
    if (ceil && rest % stride != 0 && count * stride < side + padding) ++count;
    return {side, kernel, stride, padding, dilation, count};
}

// A pool's stride is its kernel unless given, its padding at most half.
Geometry read_geometry(const Reader& reader, const Buffer& in, bool pool) {
    const auto kernel = reader.whole("kernel", 2, 1, kLargestStep, {});
    const auto stride = reader.whole("stride", 2, 1, kLargestStep, pool ? kernel : std::vector<std::size_t>{1, 1});
    const auto padding = reader.whole("padding", 2, 0, kLargestPadding, {0, 0});
    const auto dilation = reader.whole("dilation", 2, 1, kLargestStep, {1, 1});
    const bool ceil = pool && reader.number("ceil", 0.0) != 0.0;
    const Geometry geometry{
        make_axis(in.height, kernel[0], stride[0], padding[0], dilation[0], pool, ceil),
        make_axis(in.width, kernel[1], stride[1], padding[1], dilation[1], pool, ceil),
    };
    require(geometry.y.padded() * geometry.x.padded() * in.channels <= kLargestBuffer, "padded input is too large");
    return geometry;
}

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
    if (name == "leaky_relu") {
        expect(1);
        result.activation = Activation::leaky_relu;
        result.low = static_cast<float>(numbers[0]);
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
    } else if (name == "sigmoid") {
        result.activation = Activation::sigmoid;
    } else if (name == "hardswish") {
        result.activation = Activation::hardswish;
    } else if (name == "abs") {
        result.activation = Activation::abs;
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
        require(finish.bits && !finish.out && !finish.residual, "a threshold writes bits alone");
        const auto* data = reader.data<std::int32_t>("threshold", {channels});
        finish.threshold.assign(finish.scale.size(), 0);
        std::copy(data, data + channels, finish.threshold.begin());
    }
    return finish;
}

// Whole bytes of bits, the last filled up with zeros.
void expect_no_more_bits(const std::uint8_t* data, std::size_t rows, std::size_t bits, const char* otherwise) {
    const std::size_t bytes = (bits + 7) / 8;
    for (std::size_t row = 1; row <= rows && bits % 8 != 0; ++row) require(data[row * bytes - 1] >> bits % 8 == 0, otherwise);
}

Made read_convolution(const Reader& reader, const Kernels& kernels, Kept& kept) {
    const std::string& kind = reader.spec.kind;
    const Buffer& in = reader.input("x", kind == "binary_conv" ? Buffer::Type::bits
                                         : kind == "int8_conv" ? Buffer::Type::bytes
                                                               : Buffer::Type::floats);
    const Geometry geometry = read_geometry(reader, in, false);
    const ConvolutionParameters p{kernels, in, geometry, read_finish(reader, geometry), kept};
    const std::size_t outputs = p.finish.channels, kh = geometry.y.kernel, kw = geometry.x.kernel;
    if (kind == "binary_conv") {
        const auto* weight = reader.data<std::uint8_t>("weight", {outputs, kh, kw, (in.channels + 7) / 8});
        expect_no_more_bits(weight, outputs * kh * kw, in.channels, "the weight has bits beyond its channels");
        return make_binary_conv(p, weight, reader.number("pad", 0.0) == 0.0);
    }
    if (kind == "int8_conv")
        return make_int8_conv(p, reader.data<std::int8_t>("weight", {outputs, kh, kw, in.channels}),
                              reader.channel_values("zero", in.channels, 0.0f));
    const std::size_t groups = reader.whole("groups", 1, 1, kLargestChannels, {1})[0];
    require(in.channels % groups == 0 && outputs % groups == 0, "groups do not divide the channels");
    const std::vector<std::size_t> shape{outputs, kh, kw, in.channels / groups};
    // Whole numbers from −128 to 127 take a quarter of the file; here they are floats like any other.
    if (reader.spec.tensors.at("weight").type == Tensor::Type::int8)
        return make_float_conv(p, reader.data<std::int8_t>("weight", shape), groups);
    return make_float_conv(p, reader.data<float>("weight", shape), groups);
}

void expect_shape(const Buffer& out, std::size_t height, std::size_t width, std::size_t channels) {
    require(out.same_shape({out.type, height, width, channels}), "an output has the wrong shape");
}

// One picture in, one of the same shape out.
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

Made read_pair(const Reader& reader, const Kernels& k) {
    const Buffer &a = reader.input("a"), &b = reader.input("b"), &out = reader.output("float");
    const auto fits = [](std::size_t x, std::size_t y) { return x == y || x == 1 || y == 1; };
    require(fits(a.height, b.height) && fits(a.width, b.width) && fits(a.channels, b.channels), "shapes do not fit together");
    expect_shape(out, std::max(a.height, b.height), std::max(a.width, b.width), std::max(a.channels, b.channels));
    return (reader.spec.kind == "add" ? make_add : make_multiply)(k, a, b, out);
}

Made read_pool(const Reader& reader, const Kernels& k) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const Geometry geometry = read_geometry(reader, in, true);
    expect_shape(out, geometry.y.count, geometry.x.count, in.channels);
    for (const Axis* axis : {&geometry.y, &geometry.x})
        for (std::size_t i = 0; i < axis->count; ++i) {
            const auto [first, last] = axis->inside(i);
            require(first < last, "a window sees nothing of the picture");
        }
    if (reader.spec.kind == "max_pool") return make_max_pool(k, in, out, geometry);
    return make_avg_pool(k, in, out, geometry, reader.number("count_padding", 1.0) != 0.0);
}

Made read_max_pool_bits(const Reader& reader) {
    const Buffer &in = reader.input("x", Buffer::Type::bits), &out = reader.output("bits", Buffer::Type::bits);
    const Geometry geometry = read_geometry(reader, in, true);
    expect_shape(out, geometry.y.count, geometry.x.count, in.channels);
    std::vector<Word> invert(words_for(in.channels), 0);
    if (reader.has_tensor("invert")) {
        const std::size_t bytes = (in.channels + 7) / 8;
        const auto* data = reader.data<std::uint8_t>("invert", {bytes});
        expect_no_more_bits(data, 1, in.channels, "invert has bits beyond its channels");
        for (std::size_t i = 0; i < bytes; ++i) invert[i / 8] |= static_cast<Word>(data[i]) << (i % 8 * 8);
    }
    return make_max_pool_bits(in, out, geometry, invert);
}

Made read_adaptive_pool(const Reader& reader, const Kernels& k, const std::vector<std::size_t>& size) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    expect_shape(out, size[0], size[1], in.channels);
    return make_adaptive_pool(k, in, out, reader.spec.kind == "adaptive_max_pool");
}

Made read_mean(const Reader& reader, const Kernels& k) {
    const std::string over = reader.word("over", "");
    if (over == "hw") return read_adaptive_pool(reader, k, {1, 1});
    require(over == "c", "mean is over hw or c");
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    expect_shape(out, in.height, in.width, 1);
    return make_channel_mean(k, in, out);
}

Made read_concat(const Reader& reader) {
    const Buffer& out = reader.output("float");
    std::vector<const Buffer*> parts;
    std::size_t channels = 0;
    for (std::size_t i = 0; i < reader.spec.inputs.size(); ++i) {
        parts.push_back(&reader.input(("x" + std::to_string(i)).c_str()));
        require(parts.back()->height == out.height && parts.back()->width == out.width, "sizes differ");
        channels += parts.back()->channels;
    }
    require(!parts.empty() && channels == out.channels, "an output has the wrong shape");
    return make_concat(parts, out);
}

Made read_reshape(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    require(in.values() == out.values(), "a reshape keeps the number of values");
    const std::string order = reader.word("order", "");
    require(order == "hwc" || order == "chw", "order is hwc or chw");
    return make_reshape(in, out, order == "chw");
}

Made read_slice(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const auto start = reader.whole("start", 3, 0, kLargestChannels, {}), stop = reader.whole("stop", 3, 0, kLargestChannels, {}),
               step = reader.whole("step", 3, 1, kLargestChannels, {});
    const std::array<std::size_t, 3> sides{in.height, in.width, in.channels};
    std::array<std::size_t, 3> counts;
    for (std::size_t i = 0; i < 3; ++i) {
        require(start[i] < stop[i] && stop[i] <= sides[i], "a slice is empty or leaves the picture");
        counts[i] = (stop[i] - start[i] + step[i] - 1) / step[i];
    }
    expect_shape(out, counts[0], counts[1], counts[2]);
    return make_slice(in, out, start, step);
}

Made read_pad(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const auto before = reader.whole("before", 3, 0, kLargestChannels, {}), after = reader.whole("after", 3, 0, kLargestChannels, {});
    expect_shape(out, before[0] + in.height + after[0], before[1] + in.width + after[1], before[2] + in.channels + after[2]);
    return make_pad(in, out, before, static_cast<float>(reader.number("value", 0.0)));
}

Made read_constant(const Reader& reader) {
    const Buffer& out = reader.output("float");
    return make_constant(out, reader.data<float>("value", {out.height, out.width, out.channels}));
}

Made read_operation(const Reader& reader, const Kernels& k, Kept& kept) {
    const std::string& kind = reader.spec.kind;
    const auto is = [&](std::initializer_list<const char*> kinds) {
        return std::any_of(kinds.begin(), kinds.end(), [&](const char* each) { return kind == each; });
    };
    if (is({"binary_conv", "float_conv", "int8_conv"})) return read_convolution(reader, k, kept);
    if (is({"pack", "quantize", "affine", "activation"})) return read_elementwise(reader, k);
    if (is({"add", "multiply"})) return read_pair(reader, k);
    if (is({"max_pool", "avg_pool"})) return read_pool(reader, k);
    if (is({"max_pool_bits"})) return read_max_pool_bits(reader);
    if (is({"adaptive_max_pool", "adaptive_avg_pool"}))
        return read_adaptive_pool(reader, k, reader.whole("size", 2, 1, kLargestSide, {}));
    if (is({"mean"})) return read_mean(reader, k);
    if (is({"concat"})) return read_concat(reader);
    if (is({"reshape"})) return read_reshape(reader);
    if (is({"slice"})) return read_slice(reader);
    if (is({"pad"})) return read_pad(reader);
    if (is({"constant"})) return read_constant(reader);
    throw Invalid("unknown kind");
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
