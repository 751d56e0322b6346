// The description of one operation in a file, and checked access to it.
#pragma once
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "ops/operation.h"

namespace rbnn {

constexpr std::size_t kLargestSide = 1 << 14, kLargestChannels = 1 << 20, kLargestBuffer = 1 << 27;
constexpr std::size_t kLargestNetwork = 1 << 28;  // values of all buffers together
constexpr std::size_t kLargestStep = 255, kLargestPadding = 1024;
constexpr double kSmallestEps = 1e-12;

// A dense array of the file.  It is read while the program is built and not kept.
struct Tensor {
    enum class Type { float32, int32, int8, uint8 } type;
    std::vector<std::size_t> shape;
    const void* data;
};

// The description of one operation.  Buffers are indices into the program's list.
struct Spec {
    std::string kind, name;
    std::map<std::string, std::size_t> inputs, outputs;
    std::map<std::string, Tensor> tensors;
    std::map<std::string, std::vector<double>> numbers;
    std::map<std::string, std::string> words;
};

// Checked access to a Spec.  Every getter throws Invalid.
class Reader {
public:
    Reader(const Spec& spec, const std::vector<Buffer>& buffers) : spec(spec), buffers_(buffers) {}

    bool has_input(const char* role) const { return spec.inputs.count(role) != 0; }
    bool has_output(const char* role) const { return spec.outputs.count(role) != 0; }
    bool has_tensor(const char* role) const { return spec.tensors.count(role) != 0; }
    const Buffer& input(const char* role, Buffer::Type type = Buffer::Type::floats) const {
        return buffer(spec.inputs, role, type);
    }
    const Buffer& output(const char* role, Buffer::Type type = Buffer::Type::floats) const {
        known_outputs_.insert(role);
        return buffer(spec.outputs, role, type);
    }
    // Call this after the operation was made.  Nothing would write an output that the operation does not know, so it
    // would contain data of another call.
    void all_outputs_known() const;
    // The values of a tensor, which must have this type and shape.
    template <class Number>
    const Number* data(const char* role, const std::vector<std::size_t>& shape) const {
        constexpr Tensor::Type type = std::is_same_v<Number, float>          ? Tensor::Type::float32
                                      : std::is_same_v<Number, std::int32_t> ? Tensor::Type::int32
                                      : std::is_same_v<Number, std::int8_t>  ? Tensor::Type::int8
                                                                             : Tensor::Type::uint8;
        return static_cast<const Number*>(tensor(role, type, shape).data);
    }
    // `count` floats, padded with `fill` to whole blocks; only `fill` if there is no such tensor.
    std::vector<float> channel_values(const char* role, std::size_t count, float fill) const;
    // `count` integers from low to high; `otherwise` if the attribute is missing.
    std::vector<std::size_t> whole(const char* role, std::size_t count, std::size_t low, std::size_t high,
                                   const std::vector<std::size_t>& otherwise) const;
    // 1 to `most` integers.
    std::vector<std::size_t> some(const char* role, std::size_t most, std::size_t low, std::size_t high) const;
    double number(const char* role, double otherwise) const;
    std::string word(const char* role, const std::string& otherwise) const;
    // Output channels of a convolution: the first dimension of its weight.
    std::size_t out_channels() const;

    const Spec& spec;

private:
    const Tensor& tensor(const char* role, Tensor::Type type, const std::vector<std::size_t>& shape) const;
    const Buffer& buffer(const std::map<std::string, std::size_t>& side, const char* role, Buffer::Type type) const;
    const std::vector<Buffer>& buffers_;
    mutable std::set<std::string> known_outputs_;
};

}  // namespace rbnn
