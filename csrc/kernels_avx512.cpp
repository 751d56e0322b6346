// AVX-512 with VPOPCNTDQ and VNNI: lanes are 8 output channels, one word of 64 activations is broadcast to all of them.
//
//   acc[pixel][lane] += popcount(a[pixel][k] xor w[k][lane])          3 instructions for 512 multiply-adds
//
// 6 pixels × 32 channels are 24 accumulators; with 4 registers of weights and 1 broadcast that leaves 3 of 32 free.
#include <cmath>

#include "kernels.h"

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

    // vpdpbusd: four bytes times four int8 weights a step, added up in 32 bits, exact.
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

#include "kernels_body.h"

constexpr int kMostPixels = 6;
constexpr std::size_t kHalf = 32;       // channels of one tile
constexpr int kVectors = 4;             // registers of 8 words for them

// halves × words × 32 channels
void tile_weights(const Word* rows, std::size_t channels, std::size_t words, std::uint8_t* out) {
    auto* to = reinterpret_cast<Word*>(out);
    for (std::size_t half = 0; half < kBlock; half += kHalf)
        for (std::size_t k = 0; k < words; ++k)
            for (std::size_t c = half; c < half + kHalf; ++c) *to++ = c < channels ? rows[c * words + k] : 0;
}

// Pins a value to one register: GCC would copy sums from step to step.
RBNN_INLINE void keep(__m512i& value) { asm("" : "+v"(value)); }

template <int kPixels>
RBNN_INLINE void count_tile(const BinaryConv& job, const Word* weights, std::size_t pixel,
                            std::uint32_t (*counts)[kBlock], std::size_t half) {
    const Word* in[kPixels];
    for (int p = 0; p < kPixels; ++p)
        in[p] = reinterpret_cast<const Word*>(job.operand + job.offset[pixel + p]);
    __m512i acc[kPixels][kVectors];
    for (int p = 0; p < kPixels; ++p)
        for (int v = 0; v < kVectors; ++v) acc[p][v] = _mm512_setzero_si512();
    for (std::size_t s = 0; s < job.segment_count; ++s) {
        const std::size_t begin = job.segments[s].offset / sizeof(Word);
        const std::size_t end = begin + job.segments[s].length / sizeof(Word);
        for (std::size_t k = begin; k < end; ++k, weights += kHalf) {
            __m512i w[kVectors];
            for (int v = 0; v < kVectors; ++v) w[v] = _mm512_loadu_si512(weights + 8 * v);
            for (int p = 0; p < kPixels; ++p) {
                const __m512i a = _mm512_set1_epi64(static_cast<long long>(in[p][k]));
                for (int v = 0; v < kVectors; ++v) {
                    acc[p][v] = _mm512_add_epi64(acc[p][v], _mm512_popcnt_epi64(_mm512_xor_si512(a, w[v])));
                    keep(acc[p][v]);
                }
            }
        }
    }
    for (int p = 0; p < kPixels; ++p)
        for (int v = 0; v < kVectors; ++v)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(counts[p] + half + 8 * static_cast<std::size_t>(v)),
                                _mm512_cvtepi64_epi32(acc[p][v]));
}

struct BinaryTile {
    template <int kPixels>
    static void run(const BinaryConv& job, std::size_t block, std::size_t pixel) {
        alignas(64) std::uint32_t counts[kPixels][kBlock];
        const auto* weights = reinterpret_cast<const Word*>(job.weights + block * job.block_bytes);
        const std::size_t half_words = job.block_bytes / sizeof(Word) / 2;
        count_tile<kPixels>(job, weights, pixel, counts, 0);
        if (job.finish.channels - block * kBlock > kHalf)
            count_tile<kPixels>(job, weights + half_words, pixel, counts, kHalf);
        finish_counts(job, counts[0], block, InOrder<kPixels>(pixel).pixels, kPixels);
    }
};

void binary_conv(const BinaryConv& job, std::size_t block, std::size_t first, std::size_t last) {
    over_tiles<BinaryTile, kMostPixels>(job, block, first, last);
}

double limit(std::size_t rounds, Word seed, Word* result) {
    __m512i acc[16], a[4], w[4];
    for (int i = 0; i < 4; ++i) {
        a[i] = _mm512_set1_epi64(static_cast<long long>(seed + static_cast<Word>(i)));
        w[i] = _mm512_set1_epi64(static_cast<long long>(seed * 3 + static_cast<Word>(i)));
    }
    for (int i = 0; i < 16; ++i) acc[i] = a[i % 4];
    for (std::size_t n = 0; n < rounds; ++n) {
        for (int i = 0; i < 16; ++i) {
            acc[i] = _mm512_add_epi64(acc[i], _mm512_popcnt_epi64(_mm512_xor_si512(a[i % 4], w[i / 4])));
            keep(acc[i]);
        }
        // The compiler must not see that each round does the same.
        for (int i = 0; i < 4; ++i) keep(a[i]), keep(w[i]);
    }
    // Written out: a loop over the sums would put them into memory from the start.
    const auto mix = [](__m512i p, __m512i q, __m512i r, __m512i s) {
        return _mm512_xor_si512(_mm512_xor_si512(p, q), _mm512_xor_si512(r, s));
    };
    const __m512i all = mix(mix(acc[0], acc[1], acc[2], acc[3]), mix(acc[4], acc[5], acc[6], acc[7]),
                            mix(acc[8], acc[9], acc[10], acc[11]), mix(acc[12], acc[13], acc[14], acc[15]));
    *result = static_cast<Word>(_mm_cvtsi128_si64(_mm512_castsi512_si128(all)));
    return static_cast<double>(rounds) * 16 * 512;
}

bool supported() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512vnni");
}

}  // namespace

extern const Kernels kernels_avx512 = {
    "avx512", supported, kWordBits, sizeof(Word), 1, copy_words, word_tiles, tile_weights, kFloatPixels, binary_conv, kFloatVectors * Lanes::kCount, float_conv, float_four_rows,
    Lanes::kInt8Bytes, Lanes::kInt8Values, widen_bytes, mix_rows, int8_conv, int8_four_rows, finish_sums,
    all_finite, transpose<float>, transpose<std::uint8_t>, pack, sum, affine, quantize, max_of, add_into, multiply_add_into, add, multiply, clamp, limit,
};

}  // namespace rbnn
#endif
