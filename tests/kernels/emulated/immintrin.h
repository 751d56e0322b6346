// Stands in for the compiler's header: AVX-512 in plain C++ by SIMDe, so that its kernels run on any machine.
#pragma once
#define SIMDE_NO_NATIVE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

// Some versions of SIMDe lack these.
#ifndef __mmask16
using __mmask16 = simde__mmask16;
#endif

inline void mask_storeu_ps(void* to, __mmask16 mask, __m512 floats) {
    float from[16];
    _mm512_storeu_ps(from, floats);
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1) static_cast<float*>(to)[i] = from[i];
}
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps mask_storeu_ps

inline __m512 maskz_loadu_ps(__mmask16 mask, const void* from) {
    float to[16] = {};
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1) to[i] = static_cast<const float*>(from)[i];
    return _mm512_loadu_ps(to);
}
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps maskz_loadu_ps

inline __m512i cvtepu32_epi64(__m256i ints) {
    std::uint32_t from[8];
    std::uint64_t to[8];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(from), ints);
    for (int i = 0; i < 8; ++i) to[i] = from[i];
    return _mm512_loadu_si512(to);
}
#undef _mm512_cvtepu32_epi64
#define _mm512_cvtepu32_epi64 cvtepu32_epi64

inline __m512 cvtepi32_ps(__m512i ints) {
    std::int32_t from[16];
    float to[16];
    _mm512_storeu_si512(from, ints);
    for (int i = 0; i < 16; ++i) to[i] = static_cast<float>(from[i]);
    return _mm512_loadu_ps(to);
}
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps cvtepi32_ps

// The kernels pin sums to registers that this machine may not have, and ask whether it has them.
#define asm(...)
#define __builtin_cpu_supports(set) true
