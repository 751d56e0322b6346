// Four output rows at a time from seven sums (Toom and Cook): whole numbers only, in which it is exact.
//
// Output rows 0 … 3 see of four rows of the kernel, a stride apart,  y[k] = Σ_t w[t]·x[k+t].  With the points
// p = 0, 1, −1, 2, −2, 3 and the row X of seven input rows, a stride apart, as coefficients of powers of z,
//
//   X(i) = Σ_j x[j]·[z^j] Π_{j≠i} (z − p_j)          X(∞) = Σ_j x[j]·[z^j] Π_j (z − p_j)
//   W(i) = Σ_t w[t]·p_i^t / Π_{j≠i} (p_i − p_j)      W(∞) = w[3]
//   y[k] = Σ_i p_i^k·X(i)·W(i)  (+ X(∞)·W(∞) for k = 3)
//
// seven products for sixteen, and six for twelve where the kernel has no fourth row.  120·W is whole, so the sums are 120·y: what
// lies between may pass 2³¹, as long as 120·y does not.  Rows of the kernel that are not a multiple of the stride apart, or four
// strides and more, are further terms of the same sums: of a kernel with 7 rows and stride 2, 13 products for 28.
#pragma once
#include "ops/row_sums.h"

namespace rbnn {

constexpr std::size_t kPoints = kRowSums<Int8Conv>;

// Whether it saves products and stays exact, besides what `fours_pay` asks.
bool points_pay(const Geometry& geometry, std::size_t channels);

// Rows of the operand: for every four output rows, for every term, X at each point.
std::size_t point_rows(const Geometry& geometry);

// The operand has rows of `row` and pixels of `pixel` bytes, a value has two.
RowSums lay_out_points(const Geometry& geometry, std::size_t row, std::size_t pixel);

// Fills the operand, rows of 16-bit values with margins, from a picture of bytes.
void evaluate(const Kernels& kernels, const Geometry& geometry, std::size_t channels, const std::uint8_t* picture,
              std::int16_t* operand, int threads);

}  // namespace rbnn
