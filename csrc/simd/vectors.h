// Eight floats as one value, on every instruction set.  GCC and Clang translate it to what the target has.  All
// functions are inlined into their callers, which are compiled for one set.
#pragma once
#include <cstddef>

#define RBNN_INLINE inline __attribute__((always_inline))
#define RBNN_INLINE_LAMBDA __attribute__((always_inline))

// RBNN_UNROLL is for loops over the registers of a tile.  They must be unrolled early, otherwise GCC keeps a copy of
// the tile in memory.  RBNN_IVDEP is for loops that may be vectorised although they write what they read.  Clang
// checks this at run time instead.
#if defined(__clang__)
#define RBNN_UNROLL
#define RBNN_IVDEP
#else
#define RBNN_UNROLL _Pragma("GCC unroll 16")
#define RBNN_IVDEP _Pragma("GCC ivdep")
#endif

namespace rbnn {

constexpr std::size_t kLanes = 8;
using Floats = float __attribute__((vector_size(32)));

template <class Vector = Floats>
RBNN_INLINE Vector load(const void* p) {
    Vector v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
template <class Vector>
RBNN_INLINE void store(float* p, Vector v) {
    __builtin_memcpy(p, &v, sizeof v);
}

// row[i][j] becomes row[j][i].
RBNN_INLINE void transpose_square(Floats (&row)[8]) {
    Floats pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = __builtin_shufflevector(row[i], row[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        pairs[i + 1] = __builtin_shufflevector(row[i], row[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; ++j) {
            fours[i + j] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            fours[i + j + 2] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int j = 0; j < 4; ++j) {
        row[j] = __builtin_shufflevector(fours[j], fours[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        row[j + 4] = __builtin_shufflevector(fours[j], fours[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

RBNN_INLINE std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }

}  // namespace rbnn
