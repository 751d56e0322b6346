#include "program/reader.h"

#include <cmath>

namespace rbnn {

const Buffer& Reader::buffer(const std::map<std::string, std::size_t>& side, const char* role,
                             Buffer::Type type) const {
    const auto found = side.find(role);
    if (found == side.end() || found->second >= buffers_.size()) throw Invalid(std::string("has no buffer ") + role);
    const Buffer& buffer = buffers_[found->second];
    if (buffer.type != type) throw Invalid(std::string("buffer ") + role + " is of the wrong type");
    return buffer;
}

void Reader::all_outputs_known() const {
    for (const auto& [role, index] : spec.outputs)
        if (known_outputs_.count(role) == 0) throw Invalid("has an output " + role + ", which it does not write");
}

const Tensor& Reader::tensor(const char* role, Tensor::Type type, const std::vector<std::size_t>& shape) const {
    const auto found = spec.tensors.find(role);
    if (found == spec.tensors.end()) throw Invalid(std::string("has no tensor ") + role);
    if (found->second.type != type || found->second.shape != shape)
        throw Invalid(std::string("tensor ") + role + " has the wrong type or shape");
    return found->second;
}

std::vector<float> Reader::channel_values(const char* role, std::size_t count, float fill) const {
    std::vector<float> values(words_for(count) * kBlockChannels, fill);
    if (has_tensor(role)) {
        const float* given = data<float>(role, {count});
        for (std::size_t i = 0; i < count; ++i) {
            require(std::isfinite(given[i]), "a tensor is not finite");
            values[i] = given[i];
        }
    }
    return values;
}

std::vector<std::size_t> Reader::whole(const char* role, std::size_t count, std::size_t low, std::size_t high,
                                       const std::vector<std::size_t>& otherwise) const {
    if (spec.numbers.count(role) == 0 && !otherwise.empty()) return otherwise;
    std::vector<std::size_t> values = some(role, count, low, high);
    if (values.size() != count) throw Invalid(std::string("attribute ") + role + " has the wrong length");
    return values;
}

std::vector<std::size_t> Reader::some(const char* role, std::size_t most, std::size_t low, std::size_t high) const {
    const auto found = spec.numbers.find(role);
    if (found == spec.numbers.end()) throw Invalid(std::string("has no attribute ") + role);
    if (found->second.empty() || found->second.size() > most)
        throw Invalid(std::string("attribute ") + role + " has the wrong length");
    std::vector<std::size_t> values;
    for (const double number : found->second) {
        if (!(number >= static_cast<double>(low) && number <= static_cast<double>(high)) ||
            number != std::floor(number))
            throw Invalid(std::string("attribute ") + role + " is out of range");
        values.push_back(static_cast<std::size_t>(number));
    }
    return values;
}

double Reader::number(const char* role, double otherwise) const {
    const auto found = spec.numbers.find(role);
    if (found == spec.numbers.end()) return otherwise;
    if (found->second.size() != 1 || !(std::fabs(found->second[0]) < 3e38))
        throw Invalid(std::string("attribute ") + role + " must be a finite number");
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

}  // namespace rbnn
