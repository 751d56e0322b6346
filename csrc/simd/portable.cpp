// Kernels for any machine, with the vector types that GCC and Clang have everywhere.  Loops over output channels are
// simple enough for compilers to vectorise.
#include <cmath>

#include "simd/kernels.h"
#include "simd/vectors.h"

namespace rbnn {
namespace {

struct Lanes {
    static constexpr std::size_t kCount = 4;
    using Float = float __attribute__((vector_size(16)));
    using Int = std::int32_t __attribute__((vector_size(16)));
    static Float load(const float* p) { return rbnn::load<Float>(p); }
    static void store(float* p, Float a) { rbnn::store(p, a); }
    static Float all(float a) { return Float{a, a, a, a}; }
    static Float add(Float a, Float b) { return a + b; }
    static Float subtract(Float a, Float b) { return a - b; }
    static Float multiply(Float a, Float b) { return a * b; }
    static Float multiply_add(Float a, Float b, Float c) { return a * b + c; }
    static Float smaller(Float a, Float b) { return a < b ? a : b; }
    static Float larger(Float a, Float b) { return a > b ? a : b; }
    static Int load_ints(const void* p) { return rbnn::load<Int>(p); }
    static void store_ints(std::int32_t* p, Int a) { __builtin_memcpy(p, &a, sizeof a); }
    static Int no_ints() { return Int{}; }
    static Float from_ints(Int a) { return __builtin_convertvector(a, Float); }
    static Int minus_twice(Int base, Int n) { return base - 2 * n; }
    static unsigned bits(Int mask) {
        unsigned bits = 0;
        for (std::size_t i = 0; i < kCount; ++i) bits |= static_cast<unsigned>(mask[i] != 0) << i;
        return bits;
    }
    static unsigned above(Float a, Float b) { return bits(a > b); }
    static unsigned above_ints(Int a, Int b) { return bits(a > b); }

    // A step is one byte and the weights of four channels.
    static constexpr std::size_t kInt8Bytes = 1, kInt8Values = 1;
    using Step = Int;
    static Step load_step(const std::uint8_t* p) {
        using Bytes = std::int8_t __attribute__((vector_size(4)));
        return __builtin_convertvector(rbnn::load<Bytes>(p), Int);
    }
    static Step all_step(const std::uint8_t* p) { return Int{*p, *p, *p, *p}; }
    static Int multiply_add_step(Int sums, Step x, Step w) { return sums + x * w; }
};
constexpr int kFloatPixels = 2, kFloatVectors = 4;

#include "simd/generic.h"

constexpr std::size_t kMostWords = 31;  // 31 words × 8 per byte fit a byte
constexpr Word kOnes = ~Word{0} / 255;  // 0x01 in every byte

// words × 64 channels
void tile_weights(const Word* rows, std::size_t channels, std::size_t words, std::uint8_t* out) {
    auto* to = reinterpret_cast<Word*>(out);
    for (std::size_t k = 0; k < words; ++k)
        for (std::size_t c = 0; c < kBlockChannels; ++c) *to++ = c < channels ? rows[c * words + k] : 0;
}

// Counts the bits of each byte of x within the byte: pairs, then nibbles, then bytes.
RBNN_INLINE Word count_in_bytes(Word x) {
    x -= x >> 1 & (kOnes * 0x55);
    x = (x & (kOnes * 0x33)) + (x >> 2 & (kOnes * 0x33));
    return (x + (x >> 4)) & (kOnes * 0x0f);
}

RBNN_INLINE void flush(Word* bytes, std::uint32_t* counts, std::size_t n) {
    for (std::size_t c = 0; c < n; ++c) {
        // The sum of eight bytes may exceed a byte, so they are added as four 16-bit values first.
        const Word pairs = (bytes[c] & (~Word{0} / 65535 * 255)) + (bytes[c] >> 8 & (~Word{0} / 65535 * 255));
        counts[c] += static_cast<std::uint32_t>(pairs * (~Word{0} / 65535) >> 48);
        bytes[c] = 0;
    }
}

void binary_conv(const BinaryConv& job, std::size_t block, std::size_t first, std::size_t last) {
    const auto* weights = reinterpret_cast<const Word*>(job.weights + block * job.block_bytes);
    const std::size_t rest = job.finish.channels - block * kBlockChannels,
                      n = rest < kBlockChannels ? rest : kBlockChannels;
    for (std::size_t pixel = first; pixel < last; ++pixel) {
        std::uint32_t counts[kBlockChannels] = {};
        Word bytes[kBlockChannels] = {};
        const Word* w = weights;
        std::size_t unflushed = 0;
        for (std::size_t s = 0; s < job.segment_count; ++s) {
            const auto* in =
                reinterpret_cast<const Word*>(job.operand + job.offset[pixel] + job.segments[s].offset);
            for (std::size_t k = 0; k < job.segments[s].length / sizeof(Word); ++k, w += kBlockChannels) {
                for (std::size_t c = 0; c < n; ++c) bytes[c] += count_in_bytes(in[k] ^ w[c]);
                if (++unflushed == kMostWords) flush(bytes, counts, n), unflushed = 0;
            }
        }
        flush(bytes, counts, n);
        finish_counts(job, counts, block, InOrder<1>(pixel).pixels, 1);
    }
}

double limit(std::size_t rounds, Word seed, Word* result) {
    constexpr std::size_t kWords = 8;
    Word acc[kWords] = {}, w[kWords];
    for (std::size_t i = 0; i < kWords; ++i) w[i] = seed * (i + 1);
    for (std::size_t n = 0; n < rounds; ++n)
        for (std::size_t i = 0; i < kWords; ++i) {
            acc[i] += count_in_bytes(w[i] ^ seed);
            w[i] += kOnes;  // so that no two rounds are the same
        }
    *result = 0;
    for (std::size_t i = 0; i < kWords; ++i) *result ^= acc[i];
    return static_cast<double>(rounds) * kWords * 64;
}

bool supported() { return true; }

constexpr Kernels make_kernels() {
    Kernels k = generic_kernels();
    k.name = "portable";
    k.supported = supported;
    k.unit_bits = kWordBits;
    k.step_bits = kWordBits;
    k.tile_weights = tile_weights;
    k.binary_conv = binary_conv;
    k.limit = limit;
    return k;
}

}  // namespace

extern constexpr Kernels kernels_portable = make_kernels();

}  // namespace rbnn
