// Operations of a program: what a file says (Spec), and what runs (Operation).
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/aligned_memory.h"
#include "simd/kernels.h"

namespace rbnn {

// Something in a program that cannot be; the message is a sentence for the user.
struct Invalid : std::runtime_error {
    using std::runtime_error::runtime_error;
};

constexpr std::size_t kLargestSide = 1 << 14, kLargestChannels = 1 << 20, kLargestBuffer = 1 << 27;
constexpr std::size_t kLargestNetwork = 1 << 28;  // values of all buffers
constexpr std::size_t kLargestWeights = std::size_t{1} << 31;  // bytes of all weights, as operations keep them
constexpr std::size_t kLargestBorders = 1 << 26;              // numbers of all tables of borders
constexpr std::size_t kLargestStep = 255, kLargestPadding = 1024;

// One picture; its place in the arena is known once the program is planned.
struct Buffer {
    enum class Type { floats, bits, bytes } type;
    std::size_t height, width, channels;
    std::size_t offset = 0;

    std::size_t pixels() const { return height * width; }
    std::size_t values() const { return pixels() * channels; }
    std::size_t bytes() const {
        return type == Type::bytes   ? values()
               : type == Type::bits ? pixels() * words_for(channels) * sizeof(Word)
                                    : values() * sizeof(float);
    }
    bool same_shape(const Buffer& other) const {
        return height == other.height && width == other.width && channels == other.channels;
    }
};

// An array of the file, dense; it is read while the program is built and not kept.
struct Tensor {
    enum class Type { float32, int32, int8, uint8 } type;
    std::vector<std::size_t> shape;
    const void* data;
};

// One operation as the file has it.  Buffers are numbers of the program's list.
struct Spec {
    std::string kind, name;
    std::map<std::string, std::size_t> inputs, outputs;
    std::map<std::string, Tensor> tensors;
    std::map<std::string, std::vector<double>> numbers;
    std::map<std::string, std::string> words;
};

// What an operation needs to know while it runs.
struct Workspace {
    std::byte* arena;
    int threads;

    float* floats(const Buffer& buffer) const { return reinterpret_cast<float*>(arena + buffer.offset); }
    Word* words(const Buffer& buffer) const { return reinterpret_cast<Word*>(arena + buffer.offset); }
    std::uint8_t* bytes(const Buffer& buffer) const { return reinterpret_cast<std::uint8_t*>(arena + buffer.offset); }
};

class Operation {
public:
    virtual ~Operation() = default;
    virtual void run(const Workspace& work) const = 0;

    std::size_t scratch_bytes = 0;   // wanted while it runs
    std::size_t scratch_offset = 0;  // given by the plan
    bool over_residual = false;      // its output `float` may take the place of its input `residual`
};

// What the operations of a program keep, so far: operations may share a tensor and have many kinds of border, so that a small
// file could else ask for all memory.
struct Kept {
    std::size_t weights = 0, borders = 0;
};

// Checked access to a Spec.  Every getter throws Invalid with the operation's name.
class Reader {
public:
    Reader(const Spec& spec, const std::vector<Buffer>& buffers, const Kernels& kernels, Kept& kept)
        : spec(spec), kernels(kernels), buffers_(buffers), kept_(kept) {}

    [[noreturn]] void fail(const std::string& what) const;
    void require(bool condition, const char* what) const {
        if (!condition) fail(what);
    }

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
    // After an operation was made: an output that it never asked for would hold what another call has left there.
    void all_outputs_known() const;
    const Tensor& tensor(const char* role, Tensor::Type type, const std::vector<std::size_t>& shape) const;
    // `count` floats, padded with `fill` to whole blocks; all `fill` if there is no such tensor.
    std::vector<float> channel_values(const char* role, std::size_t count, float fill) const;
    // `count` whole numbers from low to high; the default if there are none.
    std::vector<std::size_t> whole(const char* role, std::size_t count, std::size_t low, std::size_t high,
                                   const std::vector<std::size_t>& otherwise) const;
    double number(const char* role, double otherwise) const;
    std::string word(const char* role, const std::string& otherwise) const;
    // Of a convolution: the first side of its weight.
    std::size_t out_channels() const;
    // Before an operation makes room for its weights, `taps` of so many bytes for each channel of whole blocks.
    void keep_weights(std::size_t channels, std::size_t taps, std::size_t bytes) const;
    // Before it makes room for a row of numbers for each kind of border.
    void keep_borders(std::size_t kinds, std::size_t numbers) const;

    const Spec& spec;
    const Kernels& kernels;

private:
    const Buffer& buffer(const std::map<std::string, std::size_t>& side, const char* role, Buffer::Type type) const;
    const std::vector<Buffer>& buffers_;
    mutable std::set<std::string> known_outputs_;
    Kept& kept_;
};

// The activation of an operation, checked.
struct ActivationSpec {
    Activation activation = Activation::clamp;
    float low, high;
    std::vector<float> slope;
};
ActivationSpec read_activation(const Reader& reader, std::size_t channels);

// The end of a convolution, checked; `at` gives the pointers for one run.
class FinishSpec {
public:
    FinishSpec(const Reader& reader, std::size_t height, std::size_t width, std::size_t channels);
    Finish at(const Workspace& work) const;

private:
    std::size_t channels_;
    std::vector<float> scale_, shift_, level_;
    std::vector<std::int32_t> threshold_;
    ActivationSpec activation_;
    const Buffer *residual_ = nullptr, *out_ = nullptr, *bits_ = nullptr;
};

using Made = std::unique_ptr<Operation>;
Made make_binary_conv(const Reader& reader);
Made make_float_conv(const Reader& reader);
Made make_int8_conv(const Reader& reader);
// The others, by kind; null if it is none of these.
Made make_elementwise(const Reader& reader);
Made make_pooling(const Reader& reader);
Made make_rearranging(const Reader& reader);

}  // namespace rbnn
