// Makes operations without weights from their descriptions in a file, and has the checks that convolutions share.
#pragma once
#include "ops/geometry.h"
#include "program/reader.h"

namespace rbnn {

// For pooling, the default stride is the kernel size, and the padding is at most half of the kernel size.
Geometry read_geometry(const Reader& reader, const Buffer& in, bool pool);
// Checks rows of bits in whole bytes: the unused bits of the last byte must be 0.
void expect_no_more_bits(const std::uint8_t* data, std::size_t rows, std::size_t bits, const char* otherwise);
void expect_shape(const Buffer& out, std::size_t height, std::size_t width, std::size_t channels);

// Returns null for any other kind of operation.
Made read_without_weights(const Reader& reader, const Kernels& k, Kept& kept);

}  // namespace rbnn
