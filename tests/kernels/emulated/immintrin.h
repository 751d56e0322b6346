// Stands in for the compiler's header: AVX-512 in plain C++ by SIMDe, so that its kernels run on any machine.
#pragma once
#define SIMDE_NO_NATIVE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

// Some versions of SIMDe lack this one.
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
