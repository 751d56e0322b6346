// What a program runs: operations on buffers in one block of memory, the arena.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bits.h"
#include "base/call.h"
#include "base/invalid.h"
#include "simd/kernels.h"

namespace rbnn {

// The values of one image.  Its place in the arena is known once the program is planned.
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

    std::size_t scratch_bytes = 0;   // the size of its scratch buffer
    std::size_t scratch_offset = 0;  // set by the plan
    bool over_residual = false;      // whether its output `float` may be written over its input `residual`
};

using Made = std::unique_ptr<Operation>;

constexpr std::size_t kMostSides = 8;  // dimensions of an array that is permuted

// Counts the memory that operations keep.  They may share a tensor or have many kinds of border, so without a limit a
// small file could demand all memory.
class Kept {
public:
    // Call this before allocating the weights of an operation: `taps` of this many bytes for each channel, in whole
    // blocks.
    void weights(std::size_t channels, std::size_t taps, std::size_t bytes) {
        weights_ += words_for(channels) * kBlockChannels * taps * bytes;
        require(weights_ <= kLargestWeights, "the weights of the network up to here take more than 2 GB");
    }
    // Call this before allocating a row of numbers for each kind of border.
    void borders(std::size_t kinds, std::size_t numbers) {
        borders_ += kinds * numbers;
        require(borders_ <= kLargestBorders,
                "the borders of the network up to here differ too much: more than 67108864 numbers in their tables");
    }

private:
    // Bytes in whole blocks.  The layout of an instruction set may take up to twice as many.
    static constexpr std::size_t kLargestWeights = std::size_t{1} << 31;
    static constexpr std::size_t kLargestBorders = 1 << 26;              // numbers in all tables together
    std::size_t weights_ = 0, borders_ = 0;
};

}  // namespace rbnn
