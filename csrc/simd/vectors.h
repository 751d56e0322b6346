// Eight floats as one value, on every instruction set: GCC and Clang make of it what the target has.
#pragma once
#include <cstddef>

// One source, one compiled clone per instruction set, chosen when the module is loaded.
#if defined(__x86_64__) && defined(__gnu_linux__)
#define RBNN_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RBNN_CLONES
#endif
// What a clone calls must become a part of it.
#define RBNN_INLINE_ALWAYS inline __attribute__((always_inline))

namespace rbnn {

constexpr std::size_t kLanes = 8;
using Floats = float __attribute__((vector_size(32)));
using LooseFloats = float __attribute__((vector_size(32), aligned(4), may_alias));

RBNN_INLINE_ALWAYS Floats load(const float* p) { return *reinterpret_cast<const LooseFloats*>(p); }
RBNN_INLINE_ALWAYS void store(float* p, Floats v) { *reinterpret_cast<LooseFloats*>(p) = v; }

// row[i][j] becomes row[j][i].
RBNN_INLINE_ALWAYS void transpose(Floats (&row)[8]) {
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

// A line of the cache.  What lies in a vector of them starts at one.
struct alignas(64) Line {
    float values[16];
};

}  // namespace rbnn
