// The kernels that are the same for every instruction set, and the part of the kernel table that they fill.  Each set
// defines its Lanes and includes this file inside an unnamed namespace, so it gets its own copy, compiled for it.
// This file must not use the standard library: the linker could pick an inline function compiled with AVX-512 for
// another file.
//
// Lanes has: Float, Int, kCount; load, store, all, add, subtract, multiply, multiply_add, smaller, larger, no_ints,
// load_ints, store_ints, from_ints, minus_twice(base, n), above(a, b) → bits, above_ints(a, b) → bits; and for int8
// convolutions kInt8Bytes, kInt8Values, Step, load_step, all_step and multiply_add_step(sums, x, w): sums += Σ x·w over
// a step.
#include "simd/generic_finish.h"
#include "simd/generic_sums.h"
#include "simd/generic_elementwise.h"
#include "simd/generic_training.h"
#include "simd/generic_counts.h"
#include "simd/generic_filters.h"
#include "simd/generic_signs.h"

// Everything except what each set defines itself: its name, how it counts bits, and its limit.  Most sets use words as
// their operand.
constexpr Kernels generic_kernels() {
    Kernels k{};
    k.operand_bytes = sizeof(Word);
    k.rows_together = 1;
    k.expand = copy_words;
    k.tiled_bytes = word_tiles;
    k.tile_positions = kFloatPixels;
    k.float_channels = kFloatVectors * Lanes::kCount;
    k.float_conv = float_conv;
    k.float_four_rows = float_four_rows;
    k.int8_bytes = Lanes::kInt8Bytes;
    k.int8_values = Lanes::kInt8Values;
    k.widen_bytes = widen_bytes;
    k.mix_rows = mix_rows;
    k.int8_conv = int8_conv;
    k.int8_four_rows = int8_four_rows;
    k.finish = finish_sums;
    k.all_finite = all_finite;
    k.transpose = transpose<float>;
    k.transpose_bytes = transpose<std::uint8_t>;
    k.pack = pack;
    k.sum = sum;
    k.affine = affine;
    k.quantize = quantize;
    k.max_of = max_of;
    k.largest_of_rows = largest_of_rows;
    k.differences = differences;
    k.add_into = add_into;
    k.multiply_add_into = multiply_add_into;
    k.add = add;
    k.multiply = multiply;
    k.clamp = clamp;
    k.training.sign = sign;
    k.training.tent = tent;
    k.training.squares = squares;
    k.training.standardised_tent = standardised_tent;
    k.training.standardised_finish = standardised_finish;
    k.training.add_hardtanh = add_hardtanh;
    k.training.hardtanh_grad = hardtanh_grad;
    k.training.sum_rows = sum_rows;
    k.training.norm.add_hardtanh = norm_add_hardtanh;
    k.training.norm.add_hardtanh_grad = norm_add_hardtanh_grad;
    k.training.norm.grad = norm_grad;
    k.training.counts.rows = count_rows;
    k.training.counts.hardtanh = counts_hardtanh;
    k.training.counts.prelu = counts_prelu;
    k.training.counts.hardtanh_sums = counts_hardtanh_sums;
    k.training.counts.prelu_sums = counts_prelu_sums;
    k.training.counts.grad = counts_grad;
    k.training.standardise = standardise;
    k.training.mix = mix;
    k.training.mix_backward = mix_backward;
    k.training.dot = dot;
    k.training.product = product;
    k.training.pack_row = pack_row;
    k.training.pixels_to_planes = pixels_to_planes;
    k.training.planes_to_pixels = planes_to_pixels;
    k.training.table_planes = table_planes;
    k.training.add_tables = add_tables;
    k.training.table_subsets = table_subsets;
    k.training.add_to_index = add_to_index;
    k.training.look_up_subsets = look_up_subsets;
    return k;
}
