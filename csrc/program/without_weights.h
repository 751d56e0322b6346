// Operations without weights from what a file says of them, checked; and the checks that convolutions share with them.
#pragma once
#include "ops/geometry.h"
#include "program/reader.h"

namespace rbnn {

// A pool's stride is its kernel unless given, its padding at most half.
Geometry read_geometry(const Reader& reader, const Buffer& in, bool pool);
// Whole bytes of bits, the last filled up with zeros.
void expect_no_more_bits(const std::uint8_t* data, std::size_t rows, std::size_t bits, const char* otherwise);
void expect_shape(const Buffer& out, std::size_t height, std::size_t width, std::size_t channels);

// Null for a kind that is none of them.
Made read_without_weights(const Reader& reader, const Kernels& k, Kept& kept);

}  // namespace rbnn
