// The training kernels of an instruction set: a section of its table (kernels.h).  Channels are multiples of 8.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/bits.h"

namespace rbnn {

// d sign/dx = max(peak − slope·|x|, 0)·(1 − tanh²(steepness·x)) if |x| ≤ support, otherwise 0.
struct Tent {
    float peak, slope, support, steepness;
};

// Four numbers are a group.  A table has one entry for each choice of their signs, or for each of their subsets.
constexpr std::size_t kGroup = 4, kSums = 16;

// One row of pixels as bits, 1 if x > level: words of channels, and planes (SignConv::plane_words).
struct PackRow {
    const float* x;                 // (width, channels)
    const float* level;             // the same number for each channel, padded to a block
    std::size_t width, channels, stride, padding;
    Word* pixels;                   // (width, words_for(channels)); tail bits are already 0
    Word* planes;
};

// For `channels` channels, whose sums are `plane` floats apart, and vectors of eight pixels:
//
//   sums[c][sums_at[v]] += Σ_i tables[offsets[c][i] + table_at[v]]
struct AddTables {
    static constexpr std::size_t kMostVectors = 4;

    const float* tables;
    const std::uint16_t* offsets;    // (channels, count), in floats
    std::size_t count, channels, plane, vectors;
    std::size_t table_at[kMostVectors], sums_at[kMostVectors];
    float* sums;
};

// One row of grad_input, for pixels with the same taps.
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
    std::size_t stride;             // floats from one of these pixels to the next
};

// Batch norm, shortcut and hardtanh, for rows of channels.
struct NormKernels {
    void (*add_hardtanh)(std::size_t rows, std::size_t channels, const float* y, const float* scale, const float* shift,
                         const float* shortcut, float* out);
    void (*add_hardtanh_grad)(std::size_t rows, std::size_t channels, const float* grad, const float* out,
                              const float* y, const float* mean, float* grad_sum, double* sum, double* product);
    void (*grad)(std::size_t rows, std::size_t channels, const float* grad_sum, const float* y, const float* mean,
                 const float* factor, const float* pull, const float* shift, float* grad_y);
};

// The same for counts, the integers that a convolution of signs computes.  They are even, because each tap adds an even
// number of signs, so their lowest bit is free.  A forward pass sets it if its activation has slope 1.
struct CountKernels {
    // Writes the floats y as counts, and the exact sums of y and of its squares; no |y| is above `largest`.
    void (*rows)(std::size_t rows, std::size_t channels, std::size_t largest, const float* y, std::int16_t* counts,
                 std::int64_t* sum, std::int64_t* square);
    // With z = count·scale + shift + shortcut:  out = hardtanh(z), or out = prelu(z) + after.
    void (*hardtanh)(std::size_t rows, std::size_t channels, std::int16_t* counts, const float* scale,
                     const float* shift, const float* shortcut, float* out);
    void (*prelu)(std::size_t rows, std::size_t channels, std::int16_t* counts, const float* scale, const float* shift,
                  const float* shortcut, const float* slope, const float* after, float* out);
    // For each channel (2, channels): Σ grad_z, Σ grad_z·(count − mean).
    void (*hardtanh_sums)(std::size_t rows, std::size_t channels, const float* grad, const std::int16_t* counts,
                          const float* mean, double* sums);
    // For each channel (4, channels): these two, Σ grad·min(z, 0), Σ grad.
    void (*prelu_sums)(std::size_t rows, std::size_t channels, const float* grad, const std::int16_t* counts,
                       const float* mean, const float* scale, const float* shift, const float* shortcut,
                       const float* slope, double* sums);
    // grad_z = grad if the bit is set, otherwise slope·grad;  grad_y = factor·grad_z + pull·(count − mean) + shift.
    void (*grad)(std::size_t rows, std::size_t channels, const float* grad, const std::int16_t* counts,
                 const float* slope, const float* mean, const float* factor, const float* pull, const float* shift,
                 float* grad_z, float* grad_y);
};

struct TrainingKernels {
    // Kernels on n values (training/elementwise.h explains what they are for).
    void (*sign)(std::size_t n, const float* x, float threshold, float* out);
    void (*tent)(std::size_t n, Tent tent, const float* grad, const float* x, float* out);  // out may be grad
    double (*squares)(std::size_t n, const float* x, float mean);                           // Σ (x − mean)²
    // out = tent(x̂)·grad, with the sum of out and the sum of out·x̂.
    void (*standardised_tent)(std::size_t n, Tent tent, const float* grad, const float* x, float mean,
                              float inverse_std, float* out, double* sum, double* product);
    // out = inverse_std·(out − shift − x̂·pull), plus `added` if that is not null.
    void (*standardised_finish)(std::size_t n, const float* x, float mean, float inverse_std, float shift, float pull,
                                const float* added, float* out);
    void (*add_hardtanh)(std::size_t n, const float* a, const float* b, float* out);  // out may be a
    void (*hardtanh_grad)(std::size_t n, const float* grad, const float* out, float* grad_in);

    // Kernels on rows of channels (training/batch_norm.h): sums of y − pivot and of its squares, and what follows from
    // them.
    void (*sum_rows)(std::size_t rows, std::size_t channels, const float* y, const float* pivot, double* sum,
                     double* square);
    NormKernels norm;
    CountKernels counts;

    // Kernels on a filter (training/rotated_weight.h).
    void (*standardise)(std::size_t n, const float* x, float mean, float inverse_std, float* out);
    // out = a + share·(b − a); out may be a.
    void (*mix)(std::size_t n, const float* a, const float* b, float share, float* out);
    // out = share·grad; returns Σ grad·(b − a).
    double (*mix_backward)(std::size_t n, const float* grad, const float* a, const float* b, float share, float* out);
    double (*dot)(std::size_t n, const float* a, const float* b);
    // out (rows, columns) = a (rows, inner) · b (inner, columns).  Columns are whole vectors, and rows of a are a_row
    // apart.
    void (*product)(std::size_t rows, std::size_t inner, std::size_t columns, const float* a, std::size_t a_row,
                    const float* b, float* out);

    void (*pack_row)(const PackRow&);

    // The gradient of the input, with planes: pixels (count, channels) times scale → planes, and back with `step`
    // floats from pixel to pixel.
    void (*pixels_to_planes)(const float* pixels, const float* scale, std::size_t count, std::size_t channels,
                             std::size_t plane, float* planes);
    void (*planes_to_pixels)(const float* planes, std::size_t plane, std::size_t count, std::size_t channels,
                             std::size_t step, float* pixels);
    // The 16 sums ±g0 ±g1 ±g2 ±g3 of n values of four planes, `entry` floats apart.
    void (*table_planes)(const float* planes, std::size_t plane, std::size_t n, std::size_t entry, float* table);
    void (*add_tables)(const AddTables&);
    // The same with pixels, for sets that look up 16 sums in a register; otherwise null.  Writes, for n pixels and
    // each group of channels, the 16 sums of gradients times scales, where bit i of the index is the sign of gi:
    // tables (n, channels / 4, 16), which start at a cache line.
    void (*table_pixels)(const float* grad, const float* scale, std::size_t n, std::size_t channels, float* tables);
    void (*look_up_row)(const LookUpRow&);

    // The gradient of the weight.  Writes, for groups of four pixels of an output row from `first` on, the sums over
    // their subsets: table (groups, 16, outputs).
    void (*table_subsets)(const float* row, std::size_t first, std::size_t width, std::size_t channels,
                          std::size_t groups, std::size_t outputs, float* table);
    // index[c] |= (planes[c] >> shift & mask) << at
    void (*add_to_index)(const Word* planes, std::size_t count, std::size_t shift, Word mask, std::size_t at,
                         std::uint32_t* index);
    // sums (count, outputs) += table[group][index[i] >> 4·group & 15] over all groups.  outputs is 8, 16 or 32; tables
    // and sums start at a cache line.
    void (*look_up_subsets)(std::size_t outputs, std::size_t groups, const float* table, const std::uint32_t* index,
                            std::size_t count, float* sums);
};

}  // namespace rbnn
