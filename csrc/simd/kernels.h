// The table of functions that each instruction set provides.
//
// Output channels are processed in blocks of 64.  The signs of a block are one word, so no two threads write the same
// word.  Arrays with one number per channel (scale, shift, …) are padded to whole blocks.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "simd/training_kernels.h"

namespace rbnn {

constexpr std::size_t kBlockChannels = 64;

// A run of taps that are adjacent in the operand: `length` units, starting at `offset`.
struct Segment {
    std::uint32_t offset, length;
};

enum class Activation {
    clamp, leaky_relu, prelu, sigmoid, hardswish, abs,
    // Computed in double and rounded once.  Their parameters, if any, are in `low` and `high`.
    elu, selu, gelu, gelu_tanh, silu, softplus, tanh, hardsigmoid, mish, exp, power
};

// The end of a convolution:  v = acc·scale + shift (+ residual);  v = activation(v);  out = v;  bits = v > level.
// With `threshold`, it is only  bits = acc > threshold.
struct Finish {
    std::size_t channels;            // of the output, without padding
    const float* scale;              // padded to blocks
    const float* shift;
    const float* residual;           // pixels × channels, or null
    Activation activation;
    float low, high;                 // clamp: ∓∞ mean none; leaky_relu: low is the slope; softplus: beta and threshold
    const float* slope;              // prelu
    const float* level;              // padded to blocks
    const std::int32_t* threshold;   // padded to blocks, or null
    float* out;                      // pixels × channels, or null
    Word* bits;                      // pixels × words_for(channels), or null
};

struct BinaryConv {
    const std::uint8_t* operand;          // the input, expanded by `expand`
    const std::uint32_t* offset;          // the first tap of each position, in bytes
    const std::uint32_t* pixel;           // the output pixel of each position; with two rows together also the one
    std::size_t width, pixels;            //   below, `width` pixels later, if it exists
    const std::uint32_t* pixel_base;      // the row of `base` for each output pixel
    const Segment* segments;              // in bytes of the operand, in the order of the weights
    std::size_t segment_count;
    const std::uint8_t* weights;          // in the order of `tile_weights`
    std::size_t block_bytes;              // of the weights of one block
    const std::int32_t* base;             // rows × blocks·64:  acc = base − 2·popcount
    Finish finish;
};

struct FloatConv {
    const float* input;
    const std::uint32_t* pixel_offset;    // in floats
    const Segment* segments;              // in floats
    std::size_t segment_count, taps;      // taps = the sum of all lengths
    const float* weights;                 // blocks × taps × 64; a single narrow block has `weight_stride` instead of 64
    std::size_t weight_stride;
    Finish finish;
};

struct Int8Conv {
    const std::uint8_t* operand;          // the input, widened by `widen_bytes`; 16-bit values may be negative
    const std::uint32_t* pixel_offset;    // in bytes
    const std::uint32_t* pixel_base;      // the row of `base` for each output pixel
    const Segment* segments;              // in bytes, whole steps
    std::size_t segment_count;
    const std::uint8_t* weights;          // blocks × steps × 64 × step
    std::size_t block_bytes;
    const float* base;                    // rows × blocks·64:  acc = Σ w·u − base
    Finish finish;
};

// The number of sums that four output rows are made of: differences for floats (ops/row_sums.h), points for integers
// (ops/toom_cook.h).
template <class Conv>
inline constexpr std::size_t kRowSums = 9;
template <>
inline constexpr std::size_t kRowSums<Int8Conv> = 7;

// Four output rows at a time, `width` pixels each.  Positions count the pixels of every fourth row.  All rows have the
// same Finish.
template <class Conv>
struct FourRows {
    Conv sums[kRowSums<Conv>];
    std::size_t width, pixels;
};

struct Kernels {
    const char* name;
    bool (*supported)();

    // The operand stores bits in units of `unit_bits`, and a word in `operand_bytes`.  The weights of each segment
    // begin at a multiple of `step_bits`.
    std::size_t unit_bits, operand_bytes, step_bits;
    // The number of output rows that are computed together, 1 or 2.  With 2, each unit of the operand is next to the
    // corresponding unit of the lower row.
    std::size_t rows_together;
    // Writes pixels of `words` words each in order, `stride` bytes apart.  What is written beyond a stride is
    // overwritten by the next pixel.  `below` is the input of the lower row, if two are computed together.
    void (*expand)(const Word* in, const Word* below, std::size_t pixels, std::size_t words, std::size_t stride,
                   std::uint8_t* out);
    // Reorders rows of `words` words, one per output channel, to the order in which binary_conv reads one block.
    std::size_t (*tiled_bytes)(std::size_t words);
    void (*tile_weights)(const Word* rows, std::size_t channels, std::size_t words, std::uint8_t* out);
    // All convolutions compute `tile_positions` positions at a time, if there are as many.
    std::size_t tile_positions;
    // Positions [first, last) of one block.
    void (*binary_conv)(const BinaryConv&, std::size_t block, std::size_t first, std::size_t last);
    // Output pixels [first, last) of one block.  `float_channels` of its channels are read at once.
    std::size_t float_channels;
    void (*float_conv)(const FloatConv&, std::size_t block, std::size_t first, std::size_t last);
    void (*float_four_rows)(const FourRows<FloatConv>&, std::size_t block, std::size_t first, std::size_t last);
    // A value in the operand of an int8 convolution has `int8_bytes` bytes, and a step has `int8_values` values.
    std::size_t int8_bytes, int8_values;
    void (*widen_bytes)(const std::uint8_t* in, std::size_t n, std::uint8_t* out);
    // out = the sum of seven rows, each multiplied by its factor.
    void (*mix_rows)(const std::uint8_t* const* rows, const std::int16_t* factors, std::size_t n, std::int16_t* out);
    void (*int8_conv)(const Int8Conv&, std::size_t block, std::size_t first, std::size_t last);
    void (*int8_four_rows)(const FourRows<Int8Conv>&, std::size_t block, std::size_t first, std::size_t last);
    // acc has pixels × 64 values of one block that were summed elsewhere.
    void (*finish)(const Finish&, const float* acc, std::size_t block, std::size_t first, std::size_t last);

    bool (*all_finite)(const float* x, std::size_t n);
    // Transposes a matrix.
    void (*transpose)(const float* from, std::size_t rows, std::size_t columns, float* to);
    void (*transpose_bytes)(const std::uint8_t* from, std::size_t rows, std::size_t columns, std::uint8_t* to);
    // bits = x·scale + shift > level, in rows of `channels` values.  scale and shift may both be null.
    void (*pack)(const float* x, const float* scale, const float* shift, const float* level, std::size_t channels,
                 std::size_t pixels, Word* bits);
    double (*sum)(const float* x, std::size_t n);
    void (*affine)(const float* x, const float* scale, const float* shift, std::size_t channels, std::size_t pixels,
                   float* out);
    // out = x·scale + shift, rounded to the nearest integer from 0 to 255.  All arrays have n values.
    void (*quantize)(const float* x, const float* scale, const float* shift, std::size_t n, std::uint8_t* out);
    // out = the maximum of n pixels, for each channel.
    void (*max_of)(const float* const* pixels, std::size_t n, std::size_t channels, float* out);
    // With xk the value k·apart after x: x − x1, x − x2, (x − x2) − (x1 − x3), for n values x.
    void (*differences)(const float* x, std::size_t apart, std::size_t n, float* by_one, float* by_two, float* by_both);
    // out[i] = max |x| over value i of `count` rows, for i < n.
    void (*largest_of_rows)(const float* const* rows, std::size_t count, std::size_t n, float* out);
    void (*add_into)(double* sums, const float* x, std::size_t n);
    void (*multiply_add_into)(float* out, const float* x, const float* factor, std::size_t n);
    void (*add)(const float* a, const float* b, std::size_t n, float* out);
    void (*multiply)(const float* a, const float* b, std::size_t n, float* out);
    void (*clamp)(const float* x, float low, float high, std::size_t n, float* out);

    // The limit of this core: `rounds` steps of popcounts that use only registers.  Returns the number of
    // multiply-adds.
    double (*limit)(std::size_t rounds, Word seed, Word* result);

    TrainingKernels training;
};

extern const Kernels kernels_portable;
#if defined(__x86_64__)
extern const Kernels kernels_avx2, kernels_avx512;
#endif
#if defined(__aarch64__)
extern const Kernels kernels_neon;
#endif

}  // namespace rbnn
