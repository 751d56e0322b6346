// AVX-512 with VPOPCNTDQ and VNNI: the lanes are 16 output channels, and 32 activations are broadcast to all of them.
//
//   acc[pixel][lane] += popcount(a[pixel][k] xor w[k][lane])          3 instructions for 512 multiply-adds
//
// 6 pixels × 64 channels are 24 accumulators.  With 4 registers of weights and 1 broadcast, 3 of 32 registers are free.
// Pixels of whole bytes are stored without gaps.  If a segment ends within a step, the broadcast masks what follows it.
#include <cmath>

#include "simd/kernels.h"
#include "simd/vectors.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace rbnn {
namespace {

struct Lanes {
    using Float = __m512;
    using Int = __m512i;
    static constexpr std::size_t kCount = 16;
    static Float load(const float* p) { return _mm512_loadu_ps(p); }
    static void store(float* p, Float v) { _mm512_storeu_ps(p, v); }
    static Float all(float v) { return _mm512_set1_ps(v); }
    static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
    static Float subtract(Float a, Float b) { return _mm512_sub_ps(a, b); }
    static Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
    static Float multiply_add(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
    static Float smaller(Float a, Float b) { return _mm512_min_ps(a, b); }
    static Float larger(Float a, Float b) { return _mm512_max_ps(a, b); }
    static Int load_ints(const void* p) { return _mm512_loadu_si512(p); }
    static void store_ints(std::int32_t* p, Int v) { _mm512_storeu_si512(p, v); }
    static Int no_ints() { return _mm512_setzero_si512(); }
    static Float from_ints(Int v) { return _mm512_cvtepi32_ps(v); }
    static Int minus_twice(Int base, Int n) { return _mm512_sub_epi32(base, _mm512_add_epi32(n, n)); }
    static unsigned above(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
    static unsigned above_ints(Int a, Int b) { return _mm512_cmpgt_epi32_mask(a, b); }

    // vpdpbusd multiplies four bytes by four int8 weights per step and adds them in 32 bits, which is exact.
    static constexpr std::size_t kInt8Bytes = 1, kInt8Values = 4;
    using Step = __m512i;
    static Step load_step(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
    static Step all_step(const std::uint8_t* p) {
        std::int32_t four;
        __builtin_memcpy(&four, p, sizeof four);
        return _mm512_set1_epi32(four);
    }
    static Int multiply_add_step(Int sums, Step x, Step w) { return _mm512_dpbusd_epi32(sums, x, w); }
};
constexpr int kFloatPixels = 6, kFloatVectors = 4;

#include "simd/generic.h"
#include "simd/avx512_training.h"

constexpr std::size_t kBroadcastBits = 32, kBroadcastBytes = kBroadcastBits / 8;

// steps × 64 channels
void tile_weights(const Word* rows, std::size_t channels, std::size_t words, std::uint8_t* out) {
    auto* to = reinterpret_cast<std::uint32_t*>(out);
    for (std::size_t bit = 0; bit < words * kWordBits; bit += kBroadcastBits)
        for (std::size_t c = 0; c < kBlockChannels; ++c)
            *to++ = c < channels ? static_cast<std::uint32_t>(rows[c * words + bit / kWordBits] >> bit % kWordBits) : 0;
}

// Keeps a value in one register.  GCC would copy sums from step to step.
RBNN_INLINE void keep(__m512i& value) { asm("" : "+v"(value)); }

// Adds the step at byte k of each pixel, after `seen` has masked it.
template <int kPixels, int kVectors, class Seen>
RBNN_INLINE void add_step(const std::uint8_t* const (&in)[kPixels], std::size_t k, const std::uint32_t* weights,
                          const Seen& seen, __m512i (&acc)[kPixels][kVectors]) {
    __m512i w[kVectors];
    RBNN_UNROLL
    for (int v = 0; v < kVectors; ++v) w[v] = _mm512_loadu_si512(weights + Lanes::kCount * static_cast<std::size_t>(v));
    RBNN_UNROLL
    for (int p = 0; p < kPixels; ++p) {
        const __m512i a = seen(Lanes::all_step(in[p] + k));
        RBNN_UNROLL
        for (int v = 0; v < kVectors; ++v) {
            acc[p][v] = _mm512_add_epi32(acc[p][v], _mm512_popcnt_epi32(_mm512_xor_si512(a, w[v])));
            keep(acc[p][v]);
        }
    }
}

template <int kVectors>
struct BinaryTile {
    template <int kPixels>
    static void run(const BinaryConv& job, std::size_t block, std::size_t pixel) {
        const auto* weights = reinterpret_cast<const std::uint32_t*>(job.weights + block * job.block_bytes);
        const std::uint8_t* in[kPixels];
        __m512i acc[kPixels][kVectors];
        RBNN_UNROLL
        for (int p = 0; p < kPixels; ++p) {
            in[p] = job.operand + job.offset[pixel + static_cast<std::size_t>(p)];
            RBNN_UNROLL
            for (int v = 0; v < kVectors; ++v) acc[p][v] = _mm512_setzero_si512();
        }
        for (std::size_t s = 0; s < job.segment_count; ++s) {
            std::size_t k = job.segments[s].offset;
            const std::size_t rest = job.segments[s].length % kBroadcastBytes, end = k + job.segments[s].length - rest;
            for (; k < end; k += kBroadcastBytes, weights += kBlockChannels)
                add_step(in, k, weights, [](__m512i a) { return a; }, acc);
            if (rest == 0) continue;
            const __m512i mask = _mm512_set1_epi32(static_cast<int>(lowest_bits(8 * rest)));
            add_step(in, k, weights, [&](__m512i a) { return _mm512_and_si512(a, mask); }, acc);
            weights += kBlockChannels;
        }
        alignas(64) std::uint32_t counts[kPixels][kBlockChannels];
        RBNN_UNROLL
        for (int p = 0; p < kPixels; ++p)
            RBNN_UNROLL
            for (int v = 0; v < kVectors; ++v)
                _mm512_store_si512(counts[p] + Lanes::kCount * static_cast<std::size_t>(v), acc[p][v]);
        finish_counts(job, counts[0], block, InOrder<kPixels>(pixel).pixels, kPixels);
    }
};

void binary_conv(const BinaryConv& job, std::size_t block, std::size_t first, std::size_t last) {
    const std::size_t channels = job.finish.channels - block * kBlockChannels;
    if (channels <= Lanes::kCount)
        over_tiles<BinaryTile<1>, 8>(job, block, first, last);
    else if (channels <= 2 * Lanes::kCount)
        over_tiles<BinaryTile<2>, 8>(job, block, first, last);
    else
        over_tiles<BinaryTile<4>, 6>(job, block, first, last);
}

double limit(std::size_t rounds, Word seed, Word* result) {
    __m512i acc[16], a[4], w[4];
    RBNN_UNROLL
    for (int i = 0; i < 4; ++i) {
        a[i] = _mm512_set1_epi32(static_cast<int>(seed + static_cast<Word>(i)));
        w[i] = _mm512_set1_epi32(static_cast<int>(seed * 3 + static_cast<Word>(i)));
    }
    RBNN_UNROLL
    for (int i = 0; i < 16; ++i) acc[i] = a[i % 4];
    for (std::size_t n = 0; n < rounds; ++n) {
        RBNN_UNROLL
        for (int i = 0; i < 16; ++i) {
            acc[i] = _mm512_add_epi32(acc[i], _mm512_popcnt_epi32(_mm512_xor_si512(a[i % 4], w[i / 4])));
            keep(acc[i]);
        }
        // The compiler must not notice that all rounds are the same.
        RBNN_UNROLL
        for (int i = 0; i < 4; ++i) keep(a[i]), keep(w[i]);
    }
    __m512i all = acc[0];
    RBNN_UNROLL
    for (int i = 1; i < 16; ++i) all = _mm512_xor_si512(all, acc[i]);
    *result = static_cast<Word>(_mm_cvtsi128_si64(_mm512_castsi512_si128(all)));
    return static_cast<double>(rounds) * 16 * 512;
}

bool supported() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512vnni");
}

constexpr Kernels make_kernels() {
    Kernels k = generic_kernels();
    k.name = "avx512";
    k.supported = supported;
    k.unit_bits = 8;
    k.step_bits = kBroadcastBits;
    k.tile_weights = tile_weights;
    k.binary_conv = binary_conv;
    k.limit = limit;
    k.training.pack_row = wide::pack_row;
    k.training.table_pixels = wide::table_pixels;
    k.training.look_up_row = wide::look_up_row;
    k.training.look_up_subsets = wide::look_up_subsets;
    return k;
}

}  // namespace

extern constexpr Kernels kernels_avx512 = make_kernels();

}  // namespace rbnn
#endif
