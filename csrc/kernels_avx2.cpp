// AVX2: popcounts by table look-up, 4 bits of 32 output channels per shuffle.
//
// For an activation nibble a the table T_a[w] = popcount(a xor w) has 16 entries: one shuffle register.  A register whose
// 32 bytes are the weight nibbles of 32 output channels, used as the index, looks all of them up at once, and the xor is
// in the table already.  So 128 multiply-adds cost one vpshufb and one vpaddb; xor + popcount by shuffles costs twice that:
//
//                                   per 256 bits        Zen 2–4 (4 pipes, 2 shuffle)    Skylake (3 pipes, 1 shuffle)
//   xor, and, shift, and, 2 shuffles, 2 adds  = 8 ops    2 cycles                         2.7 cycles
//   2 shuffles, 2 adds                        = 4 ops    1 cycle                          2 cycles
//
// The operand holds each nibble as a byte, times 4: the address of T_a (32 bytes) is then table + 8·byte, one load.
#include <cmath>
#include <cstring>

#include "kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace rbnn {
namespace {

struct Lanes {
    using Float = __m256;
    using Int = __m256i;
    static constexpr std::size_t kCount = 8;
    static Float load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, Float v) { _mm256_storeu_ps(p, v); }
    static Float all(float v) { return _mm256_set1_ps(v); }
    static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
    static Float subtract(Float a, Float b) { return _mm256_sub_ps(a, b); }
    static Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
    static Float multiply_add(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
    static Float smaller(Float a, Float b) { return _mm256_min_ps(a, b); }
    static Float larger(Float a, Float b) { return _mm256_max_ps(a, b); }
    static Int load_ints(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
    static Int load_ints(const std::uint16_t* p) {
        return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    static void store_ints(std::int32_t* p, Int v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
    static Int no_ints() { return _mm256_setzero_si256(); }
    static Float from_ints(Int v) { return _mm256_cvtepi32_ps(v); }
    static Int minus_twice(Int base, Int n) { return _mm256_sub_epi32(base, _mm256_add_epi32(n, n)); }
    static unsigned above(Float a, Float b) {
        return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
    }
    static unsigned above_ints(Int a, Int b) {
        return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(a, b))));
    }

    // Bytes as 16 bits, two of them a step: vpmaddubsw would saturate at 255·127·2, vpmaddwd is exact.
    static constexpr std::size_t kInt8Bytes = 2, kInt8Values = 2;
    using Step = __m256i;
    static Step load_step(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static Step all_step(const std::uint8_t* p) {
        std::int32_t pair;
        __builtin_memcpy(&pair, p, sizeof pair);
        return _mm256_set1_epi32(pair);
    }
    static Int multiply_add_step(Int sums, Step x, Step w) { return _mm256_add_epi32(sums, _mm256_madd_epi16(x, w)); }
};
constexpr int kFloatPixels = 6, kFloatVectors = 2;

#include "kernels_body.h"

constexpr int kMostPixels = 6;
constexpr std::size_t kMostNibbles = 63;          // 63 nibbles × 4 fit a byte
constexpr std::size_t kNibblesPerWord = 16;
constexpr std::size_t kFlushesPerWidening = 256;  // 256 × 252 fit 16 bits

struct Tables {
    alignas(64) std::uint8_t rows[16][32];
};

constexpr Tables make_tables() {
    Tables tables{};
    for (unsigned a = 0; a < 16; ++a)
        for (unsigned i = 0; i < 32; ++i) {
            const unsigned x = a ^ (i % 16);
            tables.rows[a][i] = static_cast<std::uint8_t>((x & 1) + (x >> 1 & 1) + (x >> 2 & 1) + (x >> 3));
        }
    return tables;
}
constexpr Tables kTables = make_tables();

void expand(const Word* in, std::size_t pixels, std::size_t words, std::size_t stride, std::uint8_t* out) {
    const __m128i low = _mm_set1_epi8(0x3c);
    for (std::size_t pixel = 0; pixel < pixels; ++pixel, in += words, out += stride)
        for (std::size_t i = 0; i < words; ++i) {
            const __m128i word = _mm_cvtsi64_si128(static_cast<long long>(in[i]));
            const __m128i even = _mm_and_si128(_mm_slli_epi64(word, 2), low);
            const __m128i odd = _mm_and_si128(_mm_srli_epi64(word, 2), low);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * kNibblesPerWord), _mm_unpacklo_epi8(even, odd));
        }
}

std::size_t tiled_bytes(std::size_t words) { return words * kNibblesPerWord * kBlock; }

// Byte i of a register is the channel whose count vpunpck{l,h}bw later puts at its place in natural order.
constexpr std::size_t channel_of_byte(std::size_t i) { return i % 8 + (i / 16) * 8 + (i / 8 % 2) * 16; }

void tile_weights(const Word* rows, std::size_t channels, std::size_t words, std::uint8_t* out) {
    for (std::size_t nibble = 0; nibble < words * kNibblesPerWord; ++nibble)
        for (std::size_t i = 0; i < kBlock; ++i) {
            const std::size_t channel = i / 32 * 32 + channel_of_byte(i % 32);
            const Word word = channel < channels ? rows[channel * words + nibble / kNibblesPerWord] : 0;
            *out++ = static_cast<std::uint8_t>(word >> (nibble % kNibblesPerWord * 4) & 15);
        }
}

// sum += x by bytes, in place.  Left to itself GCC moves sums from register to register and spills them.
RBNN_INLINE void add_to(__m256i& sum, __m256i x) { asm("vpaddb %1, %0, %0" : "+x"(sum) : "x"(x)); }

// Adds 32 bytes of counts to 32 16-bit counts; the first time there is nothing to add to.
RBNN_INLINE void flush(__m256i bytes, std::uint16_t* counts, bool first) {
    auto* to = reinterpret_cast<__m256i*>(counts);
    const __m256i zero = _mm256_setzero_si256();
    __m256i low = _mm256_unpacklo_epi8(bytes, zero), high = _mm256_unpackhi_epi8(bytes, zero);
    if (!first) {
        low = _mm256_add_epi16(low, _mm256_load_si256(to));
        high = _mm256_add_epi16(high, _mm256_load_si256(to + 1));
    }
    _mm256_store_si256(to, low);
    _mm256_store_si256(to + 1, high);
}

void widen(const std::uint16_t* from, std::uint32_t* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
}

// Counts of kPixels pixels × kVectors·32 channels: 12 + 2 + 2 registers at 6 × 2.  Where 16 bits might not hold a count,
// `wide` takes it, else it is null and `counts` is the result.
template <int kPixels, int kVectors>
RBNN_INLINE void count_tile(const BinaryConv& job, const std::uint8_t* weights, std::size_t pixel,
                            std::uint16_t (*counts)[kBlock], std::uint32_t (*wide)[kBlock]) {
    const std::uint8_t* in[kPixels];
    for (int p = 0; p < kPixels; ++p) in[p] = job.operand + job.pixel_offset[pixel + p];
    const auto* tables = &kTables.rows[0][0];
    std::size_t flushes = 0;
    for (std::size_t s = 0; s < job.segment_count; ++s) {
        const std::size_t length = job.segments[s].length, parts = (length + kMostNibbles - 1) / kMostNibbles;
        std::size_t k = job.segments[s].offset;
        for (std::size_t part = 0; part < parts; ++part) {
            const std::size_t end = job.segments[s].offset + length * (part + 1) / parts;
            __m256i acc[kPixels][kVectors];
            for (int p = 0; p < kPixels; ++p)
                for (int v = 0; v < kVectors; ++v) acc[p][v] = _mm256_setzero_si256();
            for (; k < end; ++k, weights += kBlock) {
                __m256i w[kVectors];
                for (int v = 0; v < kVectors; ++v)
                    w[v] = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + 32 * v));
                for (int p = 0; p < kPixels; ++p) {
                    const __m256i table =
                        _mm256_load_si256(reinterpret_cast<const __m256i*>(tables + 8 * std::size_t{in[p][k]}));
                    for (int v = 0; v < kVectors; ++v) add_to(acc[p][v], _mm256_shuffle_epi8(table, w[v]));
                }
            }
            for (int p = 0; p < kPixels; ++p)
                for (int v = 0; v < kVectors; ++v) flush(acc[p][v], counts[p] + 32 * v, flushes == 0);
            if (++flushes == kFlushesPerWidening && wide) {
                flushes = 0;
                for (int p = 0; p < kPixels; ++p) widen(counts[p], wide[p], 32 * kVectors);
            }
        }
    }
    if (wide && flushes != 0)
        for (int p = 0; p < kPixels; ++p) widen(counts[p], wide[p], 32 * kVectors);
}

struct BinaryTile {
    template <int kPixels>
    static void run(const BinaryConv& job, std::size_t block, std::size_t pixel) {
        alignas(32) std::uint16_t counts[kPixels][kBlock];
        const std::uint8_t* weights = job.weights + block * job.block_bytes;
        const bool narrow = job.finish.channels - block * kBlock <= 32;
        if (job.block_bytes / kBlock * 4 <= 65535) {
            if (narrow)
                count_tile<kPixels, 1>(job, weights, pixel, counts, nullptr);
            else
                count_tile<kPixels, 2>(job, weights, pixel, counts, nullptr);
            for (int p = 0; p < kPixels; ++p) finish_counts(job, counts[p], block, pixel + p);
        } else {
            std::uint32_t wide[kPixels][kBlock] = {};
            count_tile<kPixels, 2>(job, weights, pixel, counts, wide);
            for (int p = 0; p < kPixels; ++p) finish_counts(job, wide[p], block, pixel + p);
        }
    }
};

void binary_conv(const BinaryConv& job, std::size_t block, std::size_t first, std::size_t last) {
    over_tiles<BinaryTile, kMostPixels>(job, block, first, last);
}

// Eight independent look-ups and adds per round, nothing loaded.  Written out: arrays would end up in memory.
double limit(std::size_t rounds, Word seed, Word* result) {
    const __m256i t0 = _mm256_set1_epi64x(static_cast<long long>(seed)), t1 = _mm256_slli_epi64(t0, 1);
    __m256i w0 = _mm256_set1_epi8(1), w1 = _mm256_set1_epi8(2);
    __m256i a = t0, b = t0, c = t0, d = t0, e = t1, f = t1, g = t1, h = t1;
    for (std::size_t n = 0; n < rounds; ++n) {
        // The compiler must not see that each round, and each line, does the same.
        asm volatile("" : "+x"(w0), "+x"(w1));
        add_to(a, _mm256_shuffle_epi8(t0, w0));
        add_to(b, _mm256_shuffle_epi8(t0, w1));
        add_to(c, _mm256_shuffle_epi8(t1, w0));
        add_to(d, _mm256_shuffle_epi8(t1, w1));
        asm volatile("" : "+x"(w0), "+x"(w1));
        add_to(e, _mm256_shuffle_epi8(t0, w0));
        add_to(f, _mm256_shuffle_epi8(t0, w1));
        add_to(g, _mm256_shuffle_epi8(t1, w0));
        add_to(h, _mm256_shuffle_epi8(t1, w1));
    }
    const __m256i left = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
    const __m256i right = _mm256_xor_si256(_mm256_xor_si256(e, f), _mm256_xor_si256(g, h));
    *result = static_cast<Word>(_mm256_extract_epi64(_mm256_xor_si256(left, right), 0));
    return static_cast<double>(rounds) * 8 * 32 * 4;
}

bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

extern const Kernels kernels_avx2 = {
    "avx2", supported, 4, kNibblesPerWord, expand, tiled_bytes, tile_weights, binary_conv, float_conv,
    Lanes::kInt8Bytes, Lanes::kInt8Values, widen_bytes, int8_conv, finish_sums,
    pack, sum, affine, quantize, max_into, add_into, multiply_add_into, add, multiply, clamp, limit,
};

}  // namespace rbnn
#endif
