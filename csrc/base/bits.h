// Bits: one word type, one order, one convention.
//
// A bit is 1 for +1 and 0 for −1.  Value i of a row is bit i % 64 of word i / 64.  Tail bits are 0 in both operands of
// a dot product, so  dot = n − 2·popcount(a xor b)  needs no mask.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rbnn {

using Word = std::uint64_t;
constexpr std::size_t kWordBits = 64;

constexpr std::size_t words_for(std::size_t bits) { return (bits + kWordBits - 1) / kWordBits; }

// Packs `rows` rows of `n` floats each: bit = value > 0.  `out` has room for rows × words_for(n) words.
void pack_rows(const float* values, std::size_t rows, std::size_t n, Word* out);

// The inverse: writes +1 and −1.
void unpack_rows(const Word* words, std::size_t rows, std::size_t n, float* out);

}  // namespace rbnn
