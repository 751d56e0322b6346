// Sums of table entries in the gradient for a weight of signs, written over a vector of floats: eight on every instruction
// set, sixteen where the set has them.  All of it becomes a part of its caller, which is compiled for one set.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "simd/vectors.h"

namespace rbnn {

constexpr std::size_t kSums = 16;  // of four numbers: one for each subset

template <class Vector>
RBNN_INLINE_ALWAYS Vector load_any(const void* p) {
    Vector v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

// sums (count, kVectors vectors) += table[group][index[i] >> shift >> 4·group & 15] over kGroups groups.
template <class Vector, std::size_t kVectors, std::size_t kGroups>
RBNN_INLINE_ALWAYS void look_up(const float* table, const std::uint32_t* index, std::size_t count, unsigned shift, float* sums) {
    constexpr std::size_t kBytes = kVectors * sizeof(Vector), kFloats = sizeof(Vector) / sizeof(float);
    const char* bytes = reinterpret_cast<const char*>(table);
    for (std::size_t i = 0; i < count; ++i, sums += kVectors * kFloats) {
        const Word bits = Word{index[i]} * kBytes >> shift;  // a mask leaves an offset in bytes
        Vector acc[kVectors];
        for (std::size_t v = 0; v < kVectors; ++v) acc[v] = load_any<Vector>(sums + v * kFloats);
#pragma GCC unroll 8
        for (std::size_t group = 0; group < kGroups; ++group) {
            const char* entry = bytes + group * kSums * kBytes + (bits >> (4 * group) & (kSums - 1) * kBytes);
            for (std::size_t v = 0; v < kVectors; ++v) acc[v] += load_any<Vector>(entry + v * sizeof(Vector));
        }
        for (std::size_t v = 0; v < kVectors; ++v) {
            const Vector sum = acc[v];
            __builtin_memcpy(sums + v * kFloats, &sum, sizeof sum);
        }
    }
}

template <class Vector, std::size_t kVectors>
RBNN_INLINE_ALWAYS void look_up_groups(std::size_t groups, const float* table, const std::uint32_t* index, std::size_t count,
                                       float* sums) {
    switch (groups) {
        case 8: return look_up<Vector, kVectors, 8>(table, index, count, 0, sums);
        case 4: return look_up<Vector, kVectors, 4>(table, index, count, 0, sums);
        case 2: return look_up<Vector, kVectors, 2>(table, index, count, 0, sums);
        default:
            for (unsigned group = 0; group < groups; ++group)
                look_up<Vector, kVectors, 1>(table + group * kSums * kVectors * sizeof(Vector) / sizeof(float), index, count,
                                             4 * group, sums);
    }
}

}  // namespace rbnn
