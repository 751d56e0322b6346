// What an instruction set may bring to a convolution of signs in training.  Where it brings nothing, the plain C++ of
// sign_conv_*.cpp does the work.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "simd/kernels.h"

namespace rbnn {

// One row of pixels as bits, +1 where x > level: a bit per channel, pixel after pixel, and the planes of SignConv::plane_words.
struct PackRow {
    const float* x;                 // (width, channels)
    float level;
    std::size_t width, channels, stride, padding;
    std::uint8_t* pixels;
    Word* planes;
};

// One row of the forward pass:  out = scale · (base − 2·popcount(a xor w)).
struct CountRow {
    const std::uint8_t* bits;       // of the first pixel's first tap, a bit per channel, pixel after pixel
    std::size_t line, step;         // bytes from a row of taps to the next, from a pixel to the next
    std::size_t kernel_y, run;      // rows of taps, words of each
    Word last;                      // the bits of a row's last word
    const Word* weights;            // (channels / 8, kernel_y · run, 8)
    std::size_t pixels, channels;
    const std::int32_t* base;       // (kinds of border, channels)
    const std::uint32_t* border;    // kind of each pixel
    const float* scale;
    float* out;                     // (pixels, channels)
};

// One row of grad_input, the pixels whose taps are the same: every `stride` pixels one.
//
//   out[i][c] = Σ_taps Σ_group table[tap.pixel + i][group][index[tap][group][c]]
struct LookUpRow {
    struct Tap {
        const float* tables;         // of the first pixel: (pixels, groups, 16)
        const std::int32_t* index;   // (groups, channels rounded up to 16)
    };
    const Tap* taps;
    std::size_t tap_count, groups, pixels, channels;
    float* out;
    std::size_t stride;             // floats from a pixel to the next
};

struct SignKernels {
    void (*pack_row)(const PackRow&);
    void (*count_row)(const CountRow&);
    // For n pixels and each group of four channels the 16 sums ±g0 ±g1 ±g2 ±g3 of their gradients times scales: bit i of
    // the index is the sign of gi.  tables (n, channels / 4, 16), at a cache line.
    void (*signed_sums)(const float* grad, const float* scale, std::size_t n, std::size_t channels, float* tables);
    void (*look_up_row)(const LookUpRow&);
    // sums (count, outputs) += table[group][index[i] >> 4·group & 15] over all groups; outputs is 16 or 32, tables and sums
    // lie at a cache line.
    void (*look_up_block)(std::size_t outputs, std::size_t groups, const float* table, const std::uint32_t* index,
                          std::size_t count, float* sums);
};

#if defined(__x86_64__)
extern const SignKernels sign_kernels_avx512;
#endif

// Those of the instruction set, or null.
inline const SignKernels* sign_kernels(const Kernels& kernels) {
#if defined(__x86_64__)
    if (&kernels == &kernels_avx512) return &sign_kernels_avx512;
#endif
    (void)kernels;
    return nullptr;
}

}  // namespace rbnn
