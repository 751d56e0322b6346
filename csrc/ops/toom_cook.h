// Four output rows at a time from seven sums (Toom and Cook).  This is for integers only, for which it is exact.
//
// For four kernel rows, a stride apart, output rows 0 … 3 are  y[k] = Σ_t w[t]·x[k+t].  With the points
// p = 0, 1, −1, 2, −2, 3 and the seven input rows, a stride apart, as coefficients of powers of z,
//
//   X(i) = Σ_j x[j]·[z^j] Π_{j≠i} (z − p_j)          X(∞) = Σ_j x[j]·[z^j] Π_j (z − p_j)
//   W(i) = Σ_t w[t]·p_i^t / Π_{j≠i} (p_i − p_j)      W(∞) = w[3]
//   y[k] = Σ_i p_i^k·X(i)·W(i)  (+ X(∞)·W(∞) for k = 3)
//
// These are seven products instead of sixteen, or six instead of twelve if the kernel has no fourth row.  120·W is an
// integer, so the sums are 120·y.  Intermediate values may exceed 2³¹, as long as 120·y does not.  Kernel rows whose
// distance is not a multiple of the stride, or is four strides and more, are further terms of the same sums: a kernel
// with 7 rows and stride 2 needs 13 products instead of 28.
#pragma once
#include "ops/row_sums.h"

namespace rbnn {

constexpr std::size_t kPoints = kRowSums<Int8Conv>;

// Whether this saves products and stays exact, in addition to the conditions of `fours_pay`.
bool points_pay(const Geometry& geometry, std::size_t channels);

// The number of rows of the operand: X at each point, for every term of every four output rows.
std::size_t point_rows(const Geometry& geometry);

// A row of the operand has `row` bytes, a pixel has `pixel` bytes, and a value has two.
RowSums lay_out_points(const Geometry& geometry, std::size_t row, std::size_t pixel);

// Fills the operand, rows of 16-bit values with margins, from an image of bytes.
void evaluate(const Kernels& kernels, const Geometry& geometry, std::size_t channels, const std::uint8_t* picture,
              std::int16_t* operand, int threads);

}  // namespace rbnn
