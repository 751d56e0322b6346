// NEON: the lanes are 16 output channels, and 8 activations (one byte) are broadcast to all of them.
//
//   acc[pixel][lane] += popcount(a[pixel][k] xor w[k][lane])          veor, vcnt, vadd for 128 multiply-adds
//
// Counts stay in bytes for up to 31 steps.  6 pixels × 64 channels are 24 accumulators in 32 registers.
#include <cmath>

#include "simd/kernels.h"
#include "simd/vectors.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace rbnn {
namespace {

struct Lanes {
    using Float = float32x4_t;
    using Int = int32x4_t;
    static constexpr std::size_t kCount = 4;
    static Float load(const float* p) { return vld1q_f32(p); }
    static void store(float* p, Float v) { vst1q_f32(p, v); }
    static Float all(float v) { return vdupq_n_f32(v); }
    static Float add(Float a, Float b) { return vaddq_f32(a, b); }
    static Float subtract(Float a, Float b) { return vsubq_f32(a, b); }
    static Float multiply(Float a, Float b) { return vmulq_f32(a, b); }
    static Float multiply_add(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
    static Float smaller(Float a, Float b) { return vminq_f32(a, b); }
    static Float larger(Float a, Float b) { return vmaxq_f32(a, b); }
    static Int load_ints(const std::int32_t* p) { return vld1q_s32(p); }
    static Int load_ints(const std::uint32_t* p) { return vreinterpretq_s32_u32(vld1q_u32(p)); }
    static void store_ints(std::int32_t* p, Int v) { vst1q_s32(p, v); }
    static Int no_ints() { return vdupq_n_s32(0); }
    static Float from_ints(Int v) { return vcvtq_f32_s32(v); }
    static Int minus_twice(Int base, Int n) { return vsubq_s32(base, vshlq_n_s32(n, 1)); }
    static unsigned bits(uint32x4_t mask) {
        const uint32x4_t places = {1, 2, 4, 8};
        return vaddvq_u32(vandq_u32(mask, places));
    }
    static unsigned above(Float a, Float b) { return bits(vcgtq_f32(a, b)); }
    static unsigned above_ints(Int a, Int b) { return bits(vcgtq_s32(a, b)); }

    // Bytes are widened to 16 bits, one per step.
    static constexpr std::size_t kInt8Bytes = 2, kInt8Values = 1;
    using Step = int16x4_t;
    static Step load_step(const std::uint8_t* p) { return vreinterpret_s16_u8(vld1_u8(p)); }
    static Step all_step(const std::uint8_t* p) {
        std::int16_t value;
        __builtin_memcpy(&value, p, sizeof value);
        return vdup_n_s16(value);
    }
    static Int multiply_add_step(Int sums, Step x, Step w) { return vmlal_s16(sums, x, w); }
};
constexpr int kFloatPixels = 6, kFloatVectors = 4;

#include "simd/generic.h"

constexpr int kMostPixels = 6, kVectors = 4;
constexpr std::size_t kMostBytes = 31;            // 31 × 8 fit a byte
constexpr std::size_t kFlushesPerWidening = 256;  // 256 × 248 fit 16 bits

// bytes of activations × 64 channels
void tile_weights(const Word* rows, std::size_t channels, std::size_t words, std::uint8_t* out) {
    for (std::size_t k = 0; k < words * sizeof(Word); ++k)
        for (std::size_t c = 0; c < kBlockChannels; ++c)
            *out++ = c < channels ? static_cast<std::uint8_t>(rows[c * words + k / 8] >> (k % 8 * 8)) : 0;
}

RBNN_INLINE void widen(std::uint16_t* from, std::uint32_t* to) {
    for (std::size_t i = 0; i < kBlockChannels; i += 4) {
        vst1q_u32(to + i, vaddw_u16(vld1q_u32(to + i), vld1_u16(from + i)));
        vst1_u16(from + i, vdup_n_u16(0));
    }
}

template <int kPixels>
RBNN_INLINE void count_tile(const BinaryConv& job, const std::uint8_t* weights, std::size_t pixel,
                            std::uint32_t (*counts)[kBlockChannels]) {
    std::uint16_t partial[kPixels][kBlockChannels] = {};
    const std::uint8_t* in[kPixels];
    for (int p = 0; p < kPixels; ++p) in[p] = job.operand + job.offset[pixel + static_cast<std::size_t>(p)];
    std::size_t flushes = 0;
    for (std::size_t s = 0; s < job.segment_count; ++s) {
        const std::size_t length = job.segments[s].length, parts = (length + kMostBytes - 1) / kMostBytes;
        std::size_t k = job.segments[s].offset;
        for (std::size_t part = 0; part < parts; ++part) {
            const std::size_t end = job.segments[s].offset + length * (part + 1) / parts;
            uint8x16_t acc[kPixels][kVectors];
            for (int p = 0; p < kPixels; ++p)
                for (int v = 0; v < kVectors; ++v) acc[p][v] = vdupq_n_u8(0);
            for (; k < end; ++k, weights += kBlockChannels) {
                uint8x16_t w[kVectors];
                for (int v = 0; v < kVectors; ++v) w[v] = vld1q_u8(weights + 16 * v);
                for (int p = 0; p < kPixels; ++p) {
                    const uint8x16_t a = vdupq_n_u8(in[p][k]);
                    for (int v = 0; v < kVectors; ++v)
                        acc[p][v] = vaddq_u8(acc[p][v], vcntq_u8(veorq_u8(a, w[v])));
                }
            }
            for (int p = 0; p < kPixels; ++p)
                for (int v = 0; v < kVectors; ++v) {
                    std::uint16_t* to = partial[p] + 16 * v;
                    vst1q_u16(to, vaddw_u8(vld1q_u16(to), vget_low_u8(acc[p][v])));
                    vst1q_u16(to + 8, vaddw_high_u8(vld1q_u16(to + 8), acc[p][v]));
                }
            if (++flushes == kFlushesPerWidening) {
                flushes = 0;
                for (int p = 0; p < kPixels; ++p) widen(partial[p], counts[p]);
            }
        }
    }
    for (int p = 0; p < kPixels; ++p) widen(partial[p], counts[p]);
}

struct BinaryTile {
    template <int kPixels>
    static void run(const BinaryConv& job, std::size_t block, std::size_t pixel) {
        std::uint32_t counts[kPixels][kBlockChannels] = {};
        count_tile<kPixels>(job, job.weights + block * job.block_bytes, pixel, counts);
        finish_counts(job, counts[0], block, InOrder<kPixels>(pixel).pixels, kPixels);
    }
};

void binary_conv(const BinaryConv& job, std::size_t block, std::size_t first, std::size_t last) {
    over_tiles<BinaryTile, kMostPixels>(job, block, first, last);
}

double limit(std::size_t rounds, Word seed, Word* result) {
    uint8x16_t acc[8], a[4], w[2];
    for (int i = 0; i < 8; ++i) acc[i] = vdupq_n_u8(0);
    for (int i = 0; i < 4; ++i) a[i] = vdupq_n_u8(static_cast<std::uint8_t>(seed + static_cast<Word>(i)));
    for (int i = 0; i < 2; ++i) w[i] = vdupq_n_u8(static_cast<std::uint8_t>(seed * 3 + static_cast<Word>(i)));
    for (std::size_t n = 0; n < rounds; ++n) {
        for (int i = 0; i < 8; ++i) acc[i] = vaddq_u8(acc[i], vcntq_u8(veorq_u8(a[i % 4], w[i / 4])));
        // The compiler must not notice that all rounds are the same.
        asm volatile("" : "+w"(a[0]), "+w"(a[1]), "+w"(a[2]), "+w"(a[3]), "+w"(w[0]), "+w"(w[1]));
    }
    for (int i = 1; i < 8; ++i) acc[0] = veorq_u8(acc[0], acc[i]);
    *result = vgetq_lane_u64(vreinterpretq_u64_u8(acc[0]), 0);
    return static_cast<double>(rounds) * 8 * 128;
}

bool supported() { return true; }

constexpr Kernels make_kernels() {
    Kernels k = generic_kernels();
    k.name = "neon";
    k.supported = supported;
    k.unit_bits = 8;
    k.step_bits = 8;
    k.tile_weights = tile_weights;
    k.binary_conv = binary_conv;
    k.limit = limit;
    return k;
}

}  // namespace

extern constexpr Kernels kernels_neon = make_kernels();

}  // namespace rbnn
#endif
