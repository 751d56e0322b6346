#include "program/without_weights.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/operations.h"

namespace rbnn {

namespace {

Axis make_axis(std::size_t side, std::size_t kernel, std::size_t stride, std::size_t padding, std::size_t dilation,
               bool pool, bool ceil) {
    const std::size_t reach = dilation * (kernel - 1) + 1;
    require(!pool || 2 * padding <= kernel, "padding of a pool is at most half its kernel");
    require(side + 2 * padding >= reach, "the kernel does not fit into the picture");
    const std::size_t rest = side + 2 * padding - reach;
    std::size_t count = rest / stride + 1;
    // As in torch, with rounding up the last window starts inside the image or its left padding.
    if (ceil && rest % stride != 0 && count * stride < side + padding) ++count;
    return {side, kernel, stride, padding, dilation, count};
}

}  // namespace

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

void expect_no_more_bits(const std::uint8_t* data, std::size_t rows, std::size_t bits, const char* otherwise) {
    const std::size_t bytes = (bits + 7) / 8;
    for (std::size_t row = 1; row <= rows && bits % 8 != 0; ++row)
        require(data[row * bytes - 1] >> bits % 8 == 0, otherwise);
}

void expect_shape(const Buffer& out, std::size_t height, std::size_t width, std::size_t channels) {
    require(out.same_shape({out.type, height, width, channels}), "an output has the wrong shape");
}

namespace {

Made read_pair(const Reader& reader, const Kernels& k) {
    const std::string& kind = reader.spec.kind;
    const Buffer &a = reader.input("a"), &b = reader.input("b"), &out = reader.output("float");
    if (kind == "matmul") {
        require(a.width == b.height && a.channels == b.channels, "matrices do not fit together");
        expect_shape(out, a.height, b.width, a.channels);
        return make_matmul(a, b, out);
    }
    const auto fits = [](std::size_t x, std::size_t y) { return x == y || x == 1 || y == 1; };
    require(fits(a.height, b.height) && fits(a.width, b.width) && fits(a.channels, b.channels),
            "shapes do not fit together");
    expect_shape(out, std::max(a.height, b.height), std::max(a.width, b.width), std::max(a.channels, b.channels));
    if (kind == "add" || kind == "multiply") return (kind == "add" ? make_add : make_multiply)(k, a, b, out);
    return (kind == "divide" ? make_divide : kind == "maximum" ? make_maximum : make_minimum)(a, b, out);
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

Axes read_axes(const Reader& reader) {
    const std::string over = reader.word("over", "");
    const bool known =
        over == "h" || over == "w" || over == "c" || over == "hw" || over == "hc" || over == "wc" || over == "hwc";
    require(known, "over is h, w, c, hw, hc, wc or hwc");
    const auto has = [&](char axis) { return over.find(axis) != std::string::npos; };
    return {has('h'), has('w'), has('c')};
}

Made read_reduction(const Reader& reader, const Kernels& k) {
    const Axes over = read_axes(reader);
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    expect_shape(out, over.height ? 1 : in.height, over.width ? 1 : in.width, over.channels ? 1 : in.channels);
    if (reader.spec.kind == "mean") {
        if (over.height && over.width && !over.channels) return make_adaptive_pool(k, in, out, false);
        if (!over.height && !over.width) return make_channel_mean(k, in, out);
        return make_reduction(in, out, over, Reduction::mean);
    }
    const std::string how = reader.word("how", "");
    require(how == "sum" || how == "max" || how == "min", "how is sum, max or min");
    return make_reduction(in, out, over,
                          how == "sum" ? Reduction::sum : how == "max" ? Reduction::max : Reduction::min);
}

// A reduction over some axes, whose sizes become 1.
Made read_normalised(const Reader& reader) {
    const std::string& kind = reader.spec.kind;
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    expect_shape(out, in.height, in.width, in.channels);
    const auto float_number = [&](const char* role) {
        require(reader.spec.numbers.count(role) != 0, "a number is missing");
        return static_cast<double>(static_cast<float>(reader.number(role, 0.0)));
    };
    if (kind == "local_norm")
        return make_local_norm(in, out, {reader.whole("window", 1, 1, kLargestChannels, {})[0], float_number("alpha"),
                                         float_number("beta"), float_number("k")});
    const Axes over = read_axes(reader);
    if (kind == "softmax") return make_softmax(in, out, over, reader.number("log", 0.0) != 0.0);
    const std::size_t groups = reader.whole("groups", 1, 1, kLargestChannels, {1})[0];
    require(groups == 1 || (over.height && over.width && over.channels), "groups of channels are taken over hwc");
    require(in.channels % groups == 0, "groups do not divide the channels");
    require(reader.number("eps", 0.0) >= kSmallestEps, "eps is too small");
    return make_standardize(in, out, over, groups, float_number("eps"));
}

Made read_resize(const Reader& reader, Kept& kept) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const auto size = reader.whole("size", 2, 1, kLargestSide, {});
    expect_shape(out, size[0], size[1], in.channels);
    const std::string mode = reader.word("mode", "");
    const bool bilinear = mode == "bilinear", bicubic = mode == "bicubic", align = reader.number("align", 0.0) != 0.0;
    require(bilinear || bicubic || mode == "nearest" || mode == "nearest_exact", "unknown mode");
    std::vector<double> scale;
    if (const auto found = reader.spec.numbers.find("scale"); found != reader.spec.numbers.end()) scale = found->second;
    require(scale.empty() || scale.size() == 2, "scale has the wrong length");
    for (const double each : scale) require(each >= 0.99e-4 && each <= 1.01e4, "scale is out of range");
    require(!align || ((bilinear || bicubic) && scale.empty()), "corners cannot be aligned");
    return make_resize(in, out, bilinear ? Resize::bilinear : bicubic ? Resize::bicubic
                                : mode == "nearest" ? Resize::nearest : Resize::nearest_exact, align, scale, kept);
}

Made read_permute(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const auto sides = reader.some("sides", kMostSides, 1, kLargestBuffer),
               order = reader.some("order", kMostSides, 0, kMostSides - 1);
    require(sides.size() == order.size(), "sides and order differ in length");
    std::size_t values = 1;
    for (const std::size_t side : sides) require((values *= side) <= kLargestBuffer, "sides are too large");
    require(values == in.values() && values == out.values(), "a permutation keeps the number of values");
    std::vector<bool> there(sides.size(), false);
    for (const std::size_t axis : order) {
        require(axis < sides.size() && !there[axis], "the order is none");
        there[axis] = true;
    }
    return make_permute(in, out, sides, order);
}

Along read_along(const Reader& reader) {
    const std::string axis = reader.word("axis", "c");
    require(axis == "h" || axis == "w" || axis == "c", "axis is h, w or c");
    return axis == "h" ? Along::height : axis == "w" ? Along::width : Along::channels;
}

template <class B>
auto& side_along(B& buffer, Along axis) {
    return axis == Along::height ? buffer.height : axis == Along::width ? buffer.width : buffer.channels;
}

Made read_concat(const Reader& reader) {
    const Buffer& out = reader.output("float");
    const Along axis = read_along(reader);
    std::vector<const Buffer*> parts;
    Buffer sum = out;
    std::size_t& along = side_along(sum, axis);
    along = 0;
    for (std::size_t i = 0; i < reader.spec.inputs.size(); ++i) {
        const Buffer& part = reader.input(("x" + std::to_string(i)).c_str());
        along += side_along(part, axis);
        require((axis == Along::height || part.height == out.height) &&
                    (axis == Along::width || part.width == out.width) &&
                    (axis == Along::channels || part.channels == out.channels), "sizes differ");
        parts.push_back(&part);
    }
    require(!parts.empty() && sum.same_shape(out), "an output has the wrong shape");
    return make_concat(parts, out, axis);
}

Made read_reshape(const Reader& reader, const Kernels& k) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    require(in.values() == out.values(), "a reshape keeps the number of values");
    const std::string order = reader.word("order", "");
    require(order == "hwc" || order == "chw", "order is hwc or chw");
    return make_reshape(k, in, out, order == "chw");
}

Made read_slice(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const auto start = reader.whole("start", 3, 0, kLargestChannels, {}),
               stop = reader.whole("stop", 3, 0, kLargestChannels, {}),
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

Made read_select(const Reader& reader) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const Along axis = read_along(reader);
    const auto places = reader.some("places", kLargestChannels, 0, kLargestChannels - 1);
    const std::size_t side = side_along(in, axis);
    for (const std::size_t place : places) require(place < side, "a place is outside the picture");
    Buffer selected = in;
    side_along(selected, axis) = places.size();
    expect_shape(out, selected.height, selected.width, selected.channels);
    return make_select(in, out, axis, places);
}

Made read_pad(const Reader& reader, Kept& kept) {
    const Buffer &in = reader.input("x"), &out = reader.output("float");
    const auto before = reader.whole("before", 3, 0, kLargestChannels, {}),
               after = reader.whole("after", 3, 0, kLargestChannels, {});
    expect_shape(out, before[0] + in.height + after[0], before[1] + in.width + after[1],
                 before[2] + in.channels + after[2]);
    const std::string mode = reader.word("mode", "constant");
    if (mode == "constant") return make_pad(in, out, before, static_cast<float>(reader.number("value", 0.0)));
    require(before[2] == 0 && after[2] == 0, "only height and width are padded by the picture");
    for (std::size_t i = 0; i < 2; ++i) {
        const std::size_t side = i == 0 ? in.height : in.width, most = std::max(before[i], after[i]);
        require(mode == "replicate" || (mode == "reflect" && most < side) || (mode == "circular" && most <= side),
                "unknown mode, or a padding that is too wide");
    }
    return make_mirrored_pad(in, out, before, mode == "reflect" ? Mirror::reflect
                                              : mode == "circular" ? Mirror::circular : Mirror::replicate, kept);
}

Made read_constant(const Reader& reader) {
    const Buffer& out = reader.output("float");
    const float* value = reader.data<float>("value", {out.height, out.width, out.channels});
    require(std::all_of(value, value + out.values(), [](float v) { return std::isfinite(v); }), "not finite");
    return make_constant(out, value);
}

}  // namespace

Made read_without_weights(const Reader& reader, const Kernels& k, Kept& kept) {
    const std::string& kind = reader.spec.kind;
    const auto is = [&](std::initializer_list<const char*> kinds) {
        return std::any_of(kinds.begin(), kinds.end(), [&](const char* each) { return kind == each; });
    };
    if (is({"add", "multiply", "divide", "maximum", "minimum", "matmul"})) return read_pair(reader, k);
    if (is({"max_pool", "avg_pool"})) return read_pool(reader, k);
    if (is({"max_pool_bits"})) return read_max_pool_bits(reader);
    if (is({"adaptive_max_pool", "adaptive_avg_pool"}))
        return read_adaptive_pool(reader, k, reader.whole("size", 2, 1, kLargestSide, {}));
    if (is({"mean", "reduce"})) return read_reduction(reader, k);
    if (is({"softmax", "standardize", "local_norm"})) return read_normalised(reader);
    if (is({"resize"})) return read_resize(reader, kept);
    if (is({"concat"})) return read_concat(reader);
    if (is({"reshape"})) return read_reshape(reader, k);
    if (is({"permute"})) return read_permute(reader);
    if (is({"slice"})) return read_slice(reader);
    if (is({"select"})) return read_select(reader);
    if (is({"pad"})) return read_pad(reader, kept);
    if (is({"constant"})) return read_constant(reader);
    return nullptr;
}

}  // namespace rbnn
