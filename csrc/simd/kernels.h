// What an instruction set has to bring: one table of functions each.
//
// Output channels are worked on in blocks of 64: a block's signs are one word, so no two threads write one word.
// Arrays per channel (scale, shift, …) are padded to whole blocks.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "simd/training_kernels.h"

namespace rbnn {

constexpr std::size_t kBlockChannels = 64;

// A run of the kernel's taps that lie next to each other in the operand: `length` units from `offset` units.
struct Segment {
    std::uint32_t offset, length;
};

enum class Activation {
    clamp, leaky_relu, prelu, sigmoid, hardswish, abs,
    // In double, rounded once; those that take numbers have them in `low` and `high`.
    elu, selu, gelu, gelu_tanh, silu, softplus, tanh, hardsigmoid, mish, exp, power
};

// How a convolution ends:  v = acc·scale + shift (+ residual);  v = activation(v);  out = v;  bits = v > level.
// With `threshold` it is only  bits = acc > threshold.
struct Finish {
    std::size_t channels;            // of the output; blocks × 64 rounded down to what there is
    const float* scale;              // padded to blocks
    const float* shift;
    const float* residual;           // pixels × channels, or null
    Activation activation;
    float low, high;                 // clamp: none is −∞, ∞; leaky_relu: low is the slope; softplus: beta and threshold
    const float* slope;              // prelu
    const float* level;              // padded to blocks
    const std::int32_t* threshold;   // padded to blocks, or null
    float* out;                      // pixels × channels, or null
    Word* bits;                      // pixels × words_for(channels), or null
};

struct BinaryConv {
    const std::uint8_t* operand;          // the input, expanded by `expand`
    const std::uint32_t* offset;          // per position: where its first tap lies, in bytes
    const std::uint32_t* pixel;           // per position: its output pixel; with two rows together also the one below,
    std::size_t width, pixels;            //   `width` pixels later, if there is one
    const std::uint32_t* pixel_base;      // per output pixel: its row of `base`
    const Segment* segments;              // in bytes of the operand, in the order of the weights
    std::size_t segment_count;
    const std::uint8_t* weights;          // re-tiled by `tile_weights`
    std::size_t block_bytes;              // of the weights of one block
    const std::int32_t* base;             // rows × blocks·64:  acc = base − 2·popcount
    Finish finish;
};

struct FloatConv {
    const float* input;
    const std::uint32_t* pixel_offset;    // in floats
    const Segment* segments;              // in floats
    std::size_t segment_count, taps;      // taps = the sum of all lengths
    const float* weights;                 // blocks × taps × 64; of a single narrow block only `weight_stride` of 64
    std::size_t weight_stride;
    Finish finish;
};

struct Int8Conv {
    const std::uint8_t* operand;          // the input, widened by `widen_bytes`; in two bytes there may be negative values
    const std::uint32_t* pixel_offset;    // in bytes
    const std::uint32_t* pixel_base;      // per output pixel: its row of `base`
    const Segment* segments;              // in bytes, whole steps
    std::size_t segment_count;
    const std::uint8_t* weights;          // blocks × steps × 64 × step
    std::size_t block_bytes;
    const float* base;                    // rows × blocks·64:  acc = Σ w·u − base
    Finish finish;
};

// The sums that four output rows are made of (ops/row_sums.h): differences of floats, points of whole numbers (ops/toom_cook.h).
template <class Conv>
inline constexpr std::size_t kRowSums = 9;
template <>
inline constexpr std::size_t kRowSums<Int8Conv> = 7;

// Four output rows at a time, `width` pixels each; positions count the pixels of every fourth row.  All finish alike.
template <class Conv>
struct FourRows {
    Conv sums[kRowSums<Conv>];
    std::size_t width, pixels;
};

struct Kernels {
    const char* name;
    bool (*supported)();

    // The operand holds bits in units of `unit_bits`, a word in `operand_bytes`.  The weights of each segment begin at a
    // whole step of `step_bits`.
    std::size_t unit_bits, operand_bytes, step_bits;
    // Output rows that are worked on together, 1 or 2.  With 2 the operand holds each unit beside the one that the lower row
    // sees in its place.
    std::size_t rows_together;
    // Pixels of `words` words each → pixels `stride` bytes apart, one after the other: what is written beyond a stride
    // is overwritten by the next pixel.  `below` is what the lower row sees, where two are worked on together.
    void (*expand)(const Word* in, const Word* below, std::size_t pixels, std::size_t words, std::size_t stride,
                   std::uint8_t* out);
    // Rows of `words` words, one per output channel → the order in which binary_conv reads one block.
    std::size_t (*tiled_bytes)(std::size_t words);
    void (*tile_weights)(const Word* rows, std::size_t channels, std::size_t words, std::uint8_t* out);
    // All convolutions work on `tile_positions` at a time, where there are as many.
    std::size_t tile_positions;
    // Positions first … last of one block.
    void (*binary_conv)(const BinaryConv&, std::size_t block, std::size_t first, std::size_t last);
    // Output pixels first … last of one block; `float_channels` of it are read at once.
    std::size_t float_channels;
    void (*float_conv)(const FloatConv&, std::size_t block, std::size_t first, std::size_t last);
    void (*float_four_rows)(const FourRows<FloatConv>&, std::size_t block, std::size_t first, std::size_t last);
    // The operand of an int8 convolution holds a value in `int8_bytes` bytes; `int8_values` of them are one step.
    std::size_t int8_bytes, int8_values;
    void (*widen_bytes)(const std::uint8_t* in, std::size_t n, std::uint8_t* out);
    // out = the sum of seven rows, each times its factor.
    void (*mix_rows)(const std::uint8_t* const* rows, const std::int16_t* factors, std::size_t n, std::int16_t* out);
    void (*int8_conv)(const Int8Conv&, std::size_t block, std::size_t first, std::size_t last);
    void (*int8_four_rows)(const FourRows<Int8Conv>&, std::size_t block, std::size_t first, std::size_t last);
    // acc: pixels × 64 values of one block that something else has summed up.
    void (*finish)(const Finish&, const float* acc, std::size_t block, std::size_t first, std::size_t last);

    bool (*all_finite)(const float* x, std::size_t n);
    // Rows become columns.
    void (*transpose)(const float* from, std::size_t rows, std::size_t columns, float* to);
    void (*transpose_bytes)(const std::uint8_t* from, std::size_t rows, std::size_t columns, std::uint8_t* to);
    // bits = x·scale + shift > level, rows of `channels`; scale and shift may be null together.
    void (*pack)(const float* x, const float* scale, const float* shift, const float* level, std::size_t channels,
                 std::size_t pixels, Word* bits);
    double (*sum)(const float* x, std::size_t n);
    void (*affine)(const float* x, const float* scale, const float* shift, std::size_t channels, std::size_t pixels,
                   float* out);
    // out = x·scale + shift, rounded to the nearest whole number from 0 to 255; all of n values.
    void (*quantize)(const float* x, const float* scale, const float* shift, std::size_t n, std::uint8_t* out);
    // out = the largest of n pixels, channel by channel.
    void (*max_of)(const float* const* pixels, std::size_t n, std::size_t channels, float* out);
    // Of n values x, and those `apart`, twice and three times as far behind them: x − x1, x − x2, (x − x2) − (x1 − x3).
    void (*differences)(const float* x, std::size_t apart, std::size_t n, float* by_one, float* by_two, float* by_both);
    // out[i] = the largest |x| of value i of `count` rows, of n values each.
    void (*largest_of_rows)(const float* const* rows, std::size_t count, std::size_t n, float* out);
    void (*add_into)(double* sums, const float* x, std::size_t n);
    void (*multiply_add_into)(float* out, const float* x, const float* factor, std::size_t n);
    void (*add)(const float* a, const float* b, std::size_t n, float* out);
    void (*multiply)(const float* a, const float* b, std::size_t n, float* out);
    void (*clamp)(const float* x, float low, float high, std::size_t n, float* out);

    // The limit of this core: `rounds` times a step of popcounts in registers alone; returns the multiply-adds done.
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
