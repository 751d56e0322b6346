#include "program/operation.h"

#include <cmath>
#include <limits>

namespace rbnn {

void Reader::fail(const std::string& what) const {
    throw Invalid("operation '" + spec.name + "' (" + spec.kind + "): " + what);
}

const Buffer& Reader::buffer(const std::map<std::string, std::size_t>& side, const char* role,
                             Buffer::Type type) const {
    const auto found = side.find(role);
    if (found == side.end() || found->second >= buffers_.size()) fail(std::string("has no buffer ") + role);
    const Buffer& buffer = buffers_[found->second];
    if (buffer.type != type) fail(std::string("buffer ") + role + " is of the wrong type");
    return buffer;
}

void Reader::all_outputs_known() const {
    for (const auto& [role, index] : spec.outputs)
        if (known_outputs_.count(role) == 0) fail("has an output " + role + ", which it does not write");
}

const Tensor& Reader::tensor(const char* role, Tensor::Type type, const std::vector<std::size_t>& shape) const {
    const auto found = spec.tensors.find(role);
    if (found == spec.tensors.end()) fail(std::string("has no tensor ") + role);
    if (found->second.type != type || found->second.shape != shape)
        fail(std::string("tensor ") + role + " has the wrong type or shape");
    return found->second;
}

std::vector<float> Reader::channel_values(const char* role, std::size_t count, float fill) const {
    std::vector<float> values(words_for(count) * kBlockChannels, fill);
    if (has_tensor(role)) {
        const auto* data = static_cast<const float*>(tensor(role, Tensor::Type::float32, {count}).data);
        for (std::size_t i = 0; i < count; ++i) {
            require(std::isfinite(data[i]), "a tensor is not finite");
            values[i] = data[i];
        }
    }
    return values;
}

std::vector<std::size_t> Reader::whole(const char* role, std::size_t count, std::size_t low, std::size_t high,
                                       const std::vector<std::size_t>& otherwise) const {
    const auto found = spec.numbers.find(role);
    if (found == spec.numbers.end()) {
        if (otherwise.empty()) fail(std::string("has no attribute ") + role);
        return otherwise;
    }
    std::vector<std::size_t> values;
    for (const double number : found->second) {
        if (!(number >= static_cast<double>(low) && number <= static_cast<double>(high)) || number != std::floor(number))
            fail(std::string("attribute ") + role + " is out of range");
        values.push_back(static_cast<std::size_t>(number));
    }
    if (values.size() != count) fail(std::string("attribute ") + role + " has the wrong length");
    return values;
}

double Reader::number(const char* role, double otherwise) const {
    const auto found = spec.numbers.find(role);
    if (found == spec.numbers.end()) return otherwise;
    if (found->second.size() != 1 || !(std::fabs(found->second[0]) < 3e38))
        fail(std::string("attribute ") + role + " must be a finite number");
    return found->second[0];
}

std::string Reader::word(const char* role, const std::string& otherwise) const {
    const auto found = spec.words.find(role);
    return found == spec.words.end() ? otherwise : found->second;
}

std::size_t Reader::out_channels() const {
    const auto found = spec.tensors.find("weight");
    require(found != spec.tensors.end() && found->second.shape.size() == 4, "has no weight");
    const std::size_t channels = found->second.shape[0];
    require(channels > 0 && channels <= kLargestChannels, "has too many output channels");
    return channels;
}

void Reader::keep_weights(std::size_t channels, std::size_t taps, std::size_t bytes) const {
    kept_.weights += words_for(channels) * kBlockChannels * taps * bytes;
    require(kept_.weights <= kLargestWeights, "the weights of the network up to here take more than 2 GB");
}

void Reader::keep_borders(std::size_t kinds, std::size_t numbers) const {
    kept_.borders += kinds * numbers;
    require(kept_.borders <= kLargestBorders,
            "the borders of the network up to here differ too much: more than 67108864 numbers in their tables");
}

ActivationSpec read_activation(const Reader& reader, std::size_t channels) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    ActivationSpec result;
    result.low = -kInfinity;
    result.high = kInfinity;
    const std::string name = reader.word("activation", "");
    std::vector<double> numbers;
    if (const auto found = reader.spec.numbers.find("activation"); found != reader.spec.numbers.end())
        numbers = found->second;
    const auto expect = [&](std::size_t count) {
        reader.require(numbers.size() == count, "an activation has the wrong count of numbers");
        for (const double number : numbers)
            reader.require(std::fabs(number) < 3e38, "an activation's number is not finite");
    };
    if (name == "hardtanh") {
        expect(2);
        result.low = static_cast<float>(numbers[0]);
        result.high = static_cast<float>(numbers[1]);
        reader.require(result.low <= result.high, "hardtanh has low above high");
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
        reader.require(reader.has_tensor("slope"), "prelu has no tensor slope");
        result.slope = reader.channel_values("slope", channels, 0.0f);
    } else if (name == "sigmoid") {
        result.activation = Activation::sigmoid;
    } else if (name == "hardswish") {
        result.activation = Activation::hardswish;
    } else if (name == "abs") {
        result.activation = Activation::abs;
    } else {
        reader.require(name.empty(), "unknown activation");
    }
    return result;
}

FinishSpec::FinishSpec(const Reader& reader, std::size_t height, std::size_t width, std::size_t channels)
    : channels_(channels),
      scale_(reader.channel_values("scale", channels, 1.0f)),
      shift_(reader.channel_values("shift", channels, 0.0f)),
      level_(reader.channel_values("level", channels, 0.0f)),
      activation_(read_activation(reader, channels)) {
    const Buffer shape{Buffer::Type::floats, height, width, channels};
    if (reader.has_output("float")) out_ = &reader.output("float");
    if (reader.has_output("bits")) bits_ = &reader.output("bits", Buffer::Type::bits);
    if (reader.has_input("residual")) residual_ = &reader.input("residual");
    reader.require(out_ || bits_, "writes nothing");
    for (const Buffer* buffer : {static_cast<const Buffer*>(out_), bits_, residual_})
        reader.require(!buffer || buffer->same_shape(shape), "a buffer has the wrong shape");
    if (reader.has_tensor("threshold")) {
        reader.require(bits_ && !out_ && !residual_, "a threshold writes bits alone");
        const auto* data =
            static_cast<const std::int32_t*>(reader.tensor("threshold", Tensor::Type::int32, {channels}).data);
        threshold_.assign(words_for(channels) * kBlockChannels, 0);
        for (std::size_t i = 0; i < channels; ++i) threshold_[i] = data[i];
    }
}

Finish FinishSpec::at(const Workspace& work) const {
    return {channels_,
            scale_.data(),
            shift_.data(),
            residual_ ? work.floats(*residual_) : nullptr,
            activation_.activation,
            activation_.low,
            activation_.high,
            activation_.slope.data(),
            level_.data(),
            threshold_.empty() ? nullptr : threshold_.data(),
            out_ ? work.floats(*out_) : nullptr,
            bits_ ? work.words(*bits_) : nullptr};
}

}  // namespace rbnn
