// AVX-512 for the convolution of signs in training.
//
// Forward, lanes are 8 output channels.  In grad_input lanes are 16 input channels: a table of 16 sums is one register, and
// vpermps looks up 16 of its sums at once, one per lane, without touching memory.  In grad_weight lanes are 16 output channels.
#include "simd/sign_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>

#include "simd/look_up_sums.h"

namespace rbnn {
namespace {

constexpr std::size_t kFloats = 16, kWords = 8;
using Wide = float __attribute__((vector_size(64)));

void pack_row(const PackRow& row) {
    const __m512 level = _mm512_set1_ps(row.level);
    const std::size_t end = row.padding + row.width;
    for (std::size_t remainder = 0; remainder < row.stride; ++remainder)
        for (std::size_t c = 0; c < row.channels; c += kFloats) {
            const std::size_t channels = std::min(kFloats, row.channels - c);
            const auto inside = static_cast<__mmask16>((1u << channels) - 1);
            // The first padded column of this remainder that lies in the picture.
            std::size_t column = row.padding + (remainder + row.stride - row.padding % row.stride) % row.stride;
            __m512i half[2];
            for (std::size_t h = 0; h < 2; ++h) {
                half[h] = _mm512_setzero_si512();
                for (; column < std::min(end, (h + 1) * 32 * row.stride); column += row.stride) {
                    const std::size_t at = (column - row.padding) * row.channels + c;
                    const __m512 x = _mm512_maskz_loadu_ps(inside, row.x + at);
                    const __mmask16 above = _mm512_cmp_ps_mask(x, level, _CMP_GT_OQ) & inside;
                    const __m512i bit = _mm512_set1_epi32(static_cast<int>(std::uint32_t{1} << column / row.stride % 32));
                    half[h] = _mm512_mask_or_epi32(half[h], above, half[h], bit);
                    __builtin_memcpy(row.pixels + at / 8, &above, channels / 8);
                }
            }
            const auto store = [&](std::size_t first, __m256i low, __m256i high) {
                if (first >= channels) return;
                const __m512i upper = _mm512_slli_epi64(_mm512_cvtepu32_epi64(high), 32);
                _mm512_storeu_si512(row.planes + remainder * row.channels + c + first,
                                    _mm512_or_si512(_mm512_cvtepu32_epi64(low), upper));
            };
            store(0, _mm512_castsi512_si256(half[0]), _mm512_castsi512_si256(half[1]));
            store(kWords, _mm512_extracti64x4_epi64(half[0], 1), _mm512_extracti64x4_epi64(half[1], 1));
        }
}

// kPixels pixels of kVectors · 8 output channels.
template <std::size_t kPixels, std::size_t kVectors>
inline void count_tile(const CountRow& row, std::size_t pixel, std::size_t channel) {
    __m512i counts[kPixels][kVectors];
    for (auto& of_pixel : counts)
        for (__m512i& count : of_pixel) count = _mm512_setzero_si512();
    const std::size_t words = row.kernel_y * row.run;
    const Word* weights = row.weights + channel * words;
    const std::uint8_t* bits = row.bits + pixel * row.step;
    for (std::size_t ky = 0; ky < row.kernel_y; ++ky, bits += row.line)
        for (std::size_t i = 0; i < row.run; ++i, weights += kWords) {
            const __m512i mask = _mm512_set1_epi64(static_cast<long long>(i + 1 < row.run ? ~Word{0} : row.last));
            __m512i w[kVectors];
            for (std::size_t v = 0; v < kVectors; ++v) w[v] = _mm512_loadu_si512(weights + v * kWords * words);
            for (std::size_t p = 0; p < kPixels; ++p) {
                Word word;
                __builtin_memcpy(&word, bits + p * row.step + i * sizeof(Word), sizeof word);
                const __m512i a = _mm512_set1_epi64(static_cast<long long>(word));
                for (std::size_t v = 0; v < kVectors; ++v) {
                    const __m512i unequal = _mm512_ternarylogic_epi64(a, w[v], mask, 0x28);  // (a xor w) and mask
                    counts[p][v] = _mm512_add_epi64(counts[p][v], _mm512_popcnt_epi64(unequal));
                }
            }
        }
    for (std::size_t p = 0; p < kPixels; ++p) {
        const std::int32_t* base = row.base + row.border[pixel + p] * row.channels + channel;
        float* out = row.out + (pixel + p) * row.channels + channel;
        for (std::size_t o = 0; o < kVectors * kWords; o += kWords) {
            const __m256i count = _mm512_cvtepi64_epi32(counts[p][o / kWords]);
            const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(base + o));
            const __m256i sum = _mm256_sub_epi32(all, _mm256_add_epi32(count, count));
            _mm256_storeu_ps(out + o, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(row.scale + channel + o)));
        }
    }
}

template <std::size_t kVectors>
inline void count_channels(const CountRow& row, std::size_t channel) {
    constexpr std::size_t kPixels = 8;
    std::size_t pixel = 0;
    for (; pixel + kPixels <= row.pixels; pixel += kPixels) count_tile<kPixels, kVectors>(row, pixel, channel);
    for (; pixel < row.pixels; ++pixel) count_tile<1, kVectors>(row, pixel, channel);
}

void count_row(const CountRow& row) {
    std::size_t channel = 0;
    for (; channel + 2 * kWords <= row.channels; channel += 2 * kWords) count_channels<2>(row, channel);
    if (channel < row.channels) count_channels<1>(row, channel);
}

void signed_sums(const float* grad, const float* scale, std::size_t n, std::size_t channels, float* tables) {
    const auto signs = [](unsigned plus) {
        return _mm512_mask_blend_ps(static_cast<__mmask16>(plus), _mm512_set1_ps(-1.0f), _mm512_set1_ps(1.0f));
    };
    const __m512 s0 = signs(0xAAAA), s1 = signs(0xCCCC), s2 = signs(0xF0F0), s3 = signs(0xFF00);
    for (std::size_t pixel = 0; pixel < n; ++pixel, grad += channels)
        for (std::size_t o = 0; o < channels; o += 4, tables += kFloats) {
            const auto g = [&](std::size_t i) { return _mm512_set1_ps(grad[o + i] * scale[o + i]); };
            const __m512 low = _mm512_fmadd_ps(g(0), s0, _mm512_mul_ps(g(1), s1));
            const __m512 high = _mm512_fmadd_ps(g(2), s2, _mm512_mul_ps(g(3), s3));
            _mm512_store_ps(tables, _mm512_add_ps(low, high));
        }
}

template <std::size_t kPixels>
inline void look_up_tile(const LookUpRow& row, std::size_t pixel, std::size_t channel) {
    __m512 sums[kPixels];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    const std::size_t table = row.groups * kFloats, index_row = (row.channels + kFloats - 1) / kFloats * kFloats;
    for (const LookUpRow::Tap* tap = row.taps; tap < row.taps + row.tap_count; ++tap) {
        const float* tables = tap->tables + pixel * table;
        const std::int32_t* index = tap->index + channel;
        for (std::size_t group = 0; group < row.groups; ++group, tables += kFloats, index += index_row) {
            const __m512i at = _mm512_loadu_si512(index);
            for (std::size_t p = 0; p < kPixels; ++p)
                sums[p] = _mm512_add_ps(sums[p], _mm512_permutexvar_ps(at, _mm512_load_ps(tables + p * table)));
        }
    }
    const std::size_t channels = std::min(kFloats, row.channels - channel);
    const auto mask = static_cast<__mmask16>((1u << channels) - 1);
    for (std::size_t p = 0; p < kPixels; ++p)
        _mm512_mask_storeu_ps(row.out + (pixel + p) * row.stride + channel, mask, sums[p]);
}

void look_up_row(const LookUpRow& row) {
    constexpr std::size_t kPixels = 8;
    std::size_t pixel = 0;
    for (; pixel + kPixels <= row.pixels; pixel += kPixels)
        for (std::size_t c = 0; c < row.channels; c += kFloats) look_up_tile<kPixels>(row, pixel, c);
    for (; pixel < row.pixels; ++pixel)
        for (std::size_t c = 0; c < row.channels; c += kFloats) look_up_tile<1>(row, pixel, c);
}

void look_up_block(std::size_t outputs, std::size_t groups, const float* table, const std::uint32_t* index, std::size_t count,
                   float* sums) {
    if (outputs == 2 * kFloats) return look_up_groups<Wide, 2>(groups, table, index, count, sums);
    look_up_groups<Wide, 1>(groups, table, index, count, sums);
}

}  // namespace

extern const SignKernels sign_kernels_avx512 = {pack_row, count_row, signed_sums, look_up_row, look_up_block};

}  // namespace rbnn
#endif
