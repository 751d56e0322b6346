// AVX2: popcounts by table look-up, 4 bits of 32 output channels and two pixels per shuffle.
//
// For an activation nibble a, the table T_a[w] = popcount(a xor w) has 16 entries: one shuffle register.  The index
// register holds the weight nibbles of 32 output channels, so one shuffle looks up all of them, and the xor is already
// in the table.  A count is at most 4, so a byte has room for two: the tables of two pixels, one in the low and one in
// the high half of each byte, form one table for each of 256 pairs of nibbles.  One look-up is 256 multiply-adds.  The
// operand contains the offset of the table of each pair; the pair itself would have to be shifted each time it is
// read.
//
//   sum   = 3 look-ups                          halves of at most 12 each
//   raw  += sum            by bytes, mod 256    Σlow + 16·Σhigh
//   high += sum >> 4       16 bits at a time    odd bytes: Σhigh; even bytes: Σhigh + 16·Σlow of the odd neighbour
//
// From raw and high, each mod 256, `flush` derives all four sums of two bytes, one after the other, as long as they
// are below 256, which allows 21 groups.  This takes 8 instructions for 768 multiply-adds; xor and popcount by
// shuffles take 24.
#include <cmath>
#include <cstring>

#include "simd/kernels.h"
#include "simd/vectors.h"

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

    // Bytes are widened to 16 bits, two per step: vpmaddubsw would saturate at 255·127·2, while vpmaddwd is exact.
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

#include "simd/generic.h"

constexpr std::size_t kMostGroups = 21;           // 21 groups of 3 nibbles, 4 each, fit a byte
constexpr std::size_t kNibblesPerWord = 16;
constexpr std::size_t kFlushesPerWidening = 256;  // 256 × 252 fit 16 bits

constexpr std::size_t kTableBytes = 16;

struct Tables {
    alignas(64) std::uint8_t entries[256 * kTableBytes];
};

constexpr Tables make_tables() {
    Tables tables{};
    for (unsigned a = 0; a < 256; ++a)
        for (unsigned w = 0; w < 16; ++w) {
            const unsigned x = a ^ (w | w << 4);
            const unsigned pairs = (x & 0x55) + (x >> 1 & 0x55);
            tables.entries[a * kTableBytes + w] = static_cast<std::uint8_t>((pairs & 0x33) + (pairs >> 2 & 0x33));
        }
    return tables;
}
constexpr Tables kTables = make_tables();

// The operand's entry for a pair of nibbles, one of `in` and one of `below` (the high half): the offset of their table.
using TableOffset = std::uint16_t;
constexpr std::size_t kOperandBytes = kNibblesPerWord * sizeof(TableOffset);

void expand(const Word* in, const Word* below, std::size_t pixels, std::size_t words, std::size_t stride,
            std::uint8_t* out) {
    const __m128i low = _mm_set1_epi8(0x0f);
    for (std::size_t pixel = 0; pixel < pixels; ++pixel, in += words, below += words, out += stride)
        for (std::size_t i = 0; i < words; ++i) {
            const __m128i a = _mm_cvtsi64_si128(static_cast<long long>(in[i]));
            const __m128i b = _mm_cvtsi64_si128(static_cast<long long>(below[i]));
            const __m128i even = _mm_or_si128(_mm_and_si128(a, low), _mm_andnot_si128(low, _mm_slli_epi16(b, 4)));
            const __m128i odd = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(a, 4), low), _mm_andnot_si128(low, b));
            const __m256i pairs = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(even, odd));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * kOperandBytes),
                                _mm256_slli_epi16(pairs, 4));  // × kTableBytes
        }
}

std::size_t tiled_bytes(std::size_t words) { return words * kNibblesPerWord * kBlockChannels; }

// The even bytes of a register are 16 channels and the odd bytes the next 16: `flush` separates them in this order.
constexpr std::size_t channel_of_byte(std::size_t i) { return i / 2 + i % 2 * 16; }

void tile_weights(const Word* rows, std::size_t channels, std::size_t words, std::uint8_t* out) {
    for (std::size_t nibble = 0; nibble < words * kNibblesPerWord; ++nibble)
        for (std::size_t i = 0; i < kBlockChannels; ++i) {
            const std::size_t channel = i / 32 * 32 + channel_of_byte(i % 32);
            const Word word = channel < channels ? rows[channel * words + nibble / kNibblesPerWord] : 0;
            *out++ = static_cast<std::uint8_t>(word >> (nibble % kNibblesPerWord * 4) & 15);
        }
}

// sum += x by bytes, in place.  Without the assembly, GCC moves sums between registers and spills them.
RBNN_INLINE void add_to(__m256i& sum, __m256i x) { asm("vpaddb %1, %0, %0" : "+x"(sum) : "x"(x)); }

// Adds the counts of two pixels × 32 channels, or stores them the first time.
RBNN_INLINE void flush(__m256i raw, __m256i high, std::uint16_t* upper, std::uint16_t* lower, bool first) {
    const __m256i byte = _mm256_set1_epi16(0xff);
    const auto rest = [&](__m256i sum, __m256i known) {  // sum − 16·known, mod 256
        return _mm256_and_si256(_mm256_sub_epi16(sum, _mm256_slli_epi16(known, 4)), byte);
    };
    const __m256i high_odd = _mm256_srli_epi16(high, 8), low_odd = rest(_mm256_srli_epi16(raw, 8), high_odd);
    const __m256i high_even = rest(high, low_odd), low_even = rest(raw, high_even);
    const auto add = [&](std::uint16_t* counts, __m256i x) {
        auto* to = reinterpret_cast<__m256i*>(counts);
        _mm256_store_si256(to, first ? x : _mm256_add_epi16(x, _mm256_load_si256(to)));
    };
    add(upper, low_even), add(upper + 16, low_odd);
    add(lower, high_even), add(lower + 16, high_odd);
}

void widen(const std::uint16_t* from, std::uint32_t* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
}

// table[weights], with the weights as a memory operand.
RBNN_INLINE __m256i look_up(__m256i table, const std::uint8_t* weights) {
    __m256i found;
    asm("vpshufb %2, %1, %0" : "=x"(found) : "x"(table), "m"(*reinterpret_cast<const __m256i*>(weights)));
    return found;
}

// Adds the next kSteps nibbles of kPairs pairs of pixels × kVectors·32 channels.
template <int kSteps, int kPairs, int kVectors>
RBNN_INLINE void add_group(const TableOffset* const (&in)[kPairs], std::size_t k, const std::uint8_t* weights,
                           __m256i (&raw)[kPairs][kVectors], __m256i (&high)[kPairs][kVectors]) {
    for (int p = 0; p < kPairs; ++p) {
        __m256i sum[kVectors];
        for (int step = 0; step < kSteps; ++step) {
            const __m256i table = _mm256_broadcastsi128_si256(_mm_load_si128(
                reinterpret_cast<const __m128i*>(kTables.entries + in[p][k + static_cast<std::size_t>(step)])));
            for (int v = 0; v < kVectors; ++v) {
                const __m256i found = look_up(table, weights + step * static_cast<int>(kBlockChannels) + 32 * v);
                if (step == 0)
                    sum[v] = found;
                else
                    add_to(sum[v], found);
            }
        }
        for (int v = 0; v < kVectors; ++v) {
            add_to(raw[p][v], sum[v]);
            add_to(high[p][v], _mm256_srli_epi16(sum[v], 4));
        }
    }
}

// Counts kPairs pairs of pixels × kVectors·32 channels.  3 × 2 of them use these registers: 12 sums, 2 sums of 3
// look-ups, a table and a look-up.  If a count might exceed 16 bits, the result is in `wide`; otherwise `wide` is null
// and the result is in `counts`.
template <int kPairs, int kVectors>
RBNN_INLINE void count_tile(const BinaryConv& job, const std::uint8_t* weights, std::size_t first,
                            std::uint16_t (*counts)[kBlockChannels], std::uint32_t (*wide)[kBlockChannels]) {
    const TableOffset* in[kPairs];
    for (int p = 0; p < kPairs; ++p)
        in[p] = reinterpret_cast<const TableOffset*>(job.operand + job.offset[first + static_cast<std::size_t>(p)]);
    const Segment *segment = job.segments, *const last = segment + job.segment_count;
    const auto units = [](std::uint32_t bytes) { return bytes / sizeof(TableOffset); };
    std::size_t k = units(segment->offset), end = k + units(segment->length), flushes = 0;
    do {
        __m256i raw[kPairs][kVectors], high[kPairs][kVectors];
        for (int p = 0; p < kPairs; ++p)
            for (int v = 0; v < kVectors; ++v) raw[p][v] = high[p][v] = _mm256_setzero_si256();
        for (std::size_t room = kMostGroups; room != 0 && segment != last;) {
            const std::size_t groups = (end - k) / 3 < room ? (end - k) / 3 : room;
            for (const std::size_t stop = k + 3 * groups; k < stop; k += 3, weights += 3 * kBlockChannels)
                add_group<3>(in, k, weights, raw, high);
            room -= groups;
            if (room != 0 && end - k == 1)
                add_group<1>(in, k, weights, raw, high), --room, ++k, weights += kBlockChannels;
            if (room != 0 && end - k == 2)
                add_group<2>(in, k, weights, raw, high), --room, k += 2, weights += 2 * kBlockChannels;
            if (k == end && ++segment != last) k = units(segment->offset), end = k + units(segment->length);
        }
        for (int p = 0; p < kPairs; ++p)
            for (int v = 0; v < kVectors; ++v)
                flush(raw[p][v], high[p][v], counts[2 * p] + 32 * v, counts[2 * p + 1] + 32 * v, flushes == 0);
        if (++flushes == kFlushesPerWidening && wide) {
            flushes = 0;
            for (int p = 0; p < 2 * kPairs; ++p) widen(counts[p], wide[p], 32 * kVectors);
        }
    } while (segment != last);
    if (wide && flushes != 0)
        for (int p = 0; p < 2 * kPairs; ++p) widen(counts[p], wide[p], 32 * kVectors);
}

template <int kVectors>
struct PairTile {
    template <int kPairs>
    static void run(const BinaryConv& job, std::size_t block, std::size_t position) {
        alignas(32) std::uint16_t counts[2 * kPairs][kBlockChannels];
        std::uint32_t pixels[2 * kPairs];
        for (int p = 0; p < kPairs; ++p) {
            const std::uint32_t upper = job.pixel[position + static_cast<std::size_t>(p)];
            const std::uint32_t lower = upper + static_cast<std::uint32_t>(job.width);
            pixels[2 * p] = upper, pixels[2 * p + 1] = lower < job.pixels ? lower : kNoPixel;
        }
        const std::uint8_t* weights = job.weights + block * job.block_bytes;
        if (job.block_bytes / kBlockChannels * 4 <= 65535) {
            count_tile<kPairs, kVectors>(job, weights, position, counts, nullptr);
            finish_counts(job, counts[0], block, pixels, 2 * kPairs);
        } else {
            std::uint32_t wide[2 * kPairs][kBlockChannels] = {};
            count_tile<kPairs, kVectors>(job, weights, position, counts, wide);
            finish_counts(job, wide[0], block, pixels, 2 * kPairs);
        }
    }
};

void binary_conv(const BinaryConv& job, std::size_t block, std::size_t first, std::size_t last) {
    if (job.finish.channels - block * kBlockChannels <= 32)
        over_tiles<PairTile<1>, 6>(job, block, first, last);
    else
        over_tiles<PairTile<2>, 3>(job, block, first, last);
}

// Four groups of three look-ups at a time, without loads.  The loop is unrolled by hand, because arrays would be in
// memory.
double limit(std::size_t rounds, Word seed, Word* result) {
    const __m256i table = _mm256_set1_epi64x(static_cast<long long>(seed & 0x4444444444444444u));
    __m256i w = _mm256_set1_epi8(1), a = table, b = table, c = table, d = table, e = table, f = table, g = table,
            h = table;
    const auto group = [&](__m256i& raw, __m256i& high) {
        // The compiler must not notice that all look-ups are the same.
        __m256i sum = _mm256_shuffle_epi8(table, w);
        asm volatile("" : "+x"(w));
        add_to(sum, _mm256_shuffle_epi8(table, w));
        asm volatile("" : "+x"(w));
        add_to(sum, _mm256_shuffle_epi8(table, w));
        asm volatile("" : "+x"(w));
        add_to(raw, sum);
        add_to(high, _mm256_srli_epi16(sum, 4));
    };
    for (std::size_t n = 0; n < rounds; ++n) group(a, b), group(c, d), group(e, f), group(g, h);
    const __m256i left = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
    const __m256i right = _mm256_xor_si256(_mm256_xor_si256(e, f), _mm256_xor_si256(g, h));
    *result = static_cast<Word>(_mm256_extract_epi64(_mm256_xor_si256(left, right), 0));
    return static_cast<double>(rounds) * 4 * 3 * 256;
}

bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

constexpr Kernels make_kernels() {
    Kernels k = generic_kernels();
    k.name = "avx2";
    k.supported = supported;
    k.unit_bits = 4;
    k.operand_bytes = kOperandBytes;
    k.step_bits = 4;
    k.rows_together = 2;
    k.expand = expand;
    k.tiled_bytes = tiled_bytes;
    k.tile_weights = tile_weights;
    k.binary_conv = binary_conv;
    k.limit = limit;
    return k;
}

}  // namespace

extern constexpr Kernels kernels_avx2 = make_kernels();

}  // namespace rbnn
#endif
