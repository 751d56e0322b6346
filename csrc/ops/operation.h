// What a program runs: operations on pictures that lie in one block of memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bits.h"
#include "base/call.h"
#include "base/invalid.h"
#include "simd/kernels.h"

namespace rbnn {

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

// What an operation needs to know while it runs.
struct Workspace {
    std::byte* arena;
    int threads;
    Call& call;

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

using Made = std::unique_ptr<Operation>;

constexpr std::size_t kMostSides = 8;  // of a picture that is taken apart to be put together in another order

// What operations keep, so far: they may share a tensor and have many kinds of border, so that a small file could else ask for
// all memory.
class Kept {
public:
    // Before an operation makes room for its weights, `taps` of so many bytes for each channel of whole blocks.
    void weights(std::size_t channels, std::size_t taps, std::size_t bytes) {
        weights_ += words_for(channels) * kBlockChannels * taps * bytes;
        require(weights_ <= kLargestWeights, "the weights of the network up to here take more than 2 GB");
    }
    // Before it makes room for a row of numbers for each kind of border.
    void borders(std::size_t kinds, std::size_t numbers) {
        borders_ += kinds * numbers;
        require(borders_ <= kLargestBorders,
                "the borders of the network up to here differ too much: more than 67108864 numbers in their tables");
    }

private:
    static constexpr std::size_t kLargestWeights = std::size_t{1} << 31;  // bytes, as operations keep them
    static constexpr std::size_t kLargestBorders = 1 << 26;              // numbers of all tables
    std::size_t weights_ = 0, borders_ = 0;
};

}  // namespace rbnn
