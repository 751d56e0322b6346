// The kernels of AVX-512 for the convolution of signs in training, included by avx512.cpp.
//
// In grad_input the lanes are 16 input channels.  A table of 16 sums is one register, and vpermps looks up 16 of its
// sums at once, one per lane, without touching memory.  In grad_weight the lanes are 16 output channels.

namespace wide {

constexpr std::size_t kFloats = 16, kWords = 8;
using Vector = float __attribute__((vector_size(64)));

void pack_row(const PackRow& row) {
    const __m512 level = _mm512_set1_ps(row.level[0]);
    const std::size_t end = row.padding + row.width, pixel = words_for(row.channels) * sizeof(Word);
    auto* pixels = reinterpret_cast<std::uint8_t*>(row.pixels);
    for (std::size_t remainder = 0; remainder < row.stride; ++remainder)
        for (std::size_t c = 0; c < row.channels; c += kFloats) {
            const std::size_t channels = least(kFloats, row.channels - c);
            const auto inside = static_cast<__mmask16>((1u << channels) - 1);
            // The first padded column with this remainder that is inside the image.
            std::size_t column = row.padding + (remainder + row.stride - row.padding % row.stride) % row.stride;
            __m512i half[2];
            for (std::size_t h = 0; h < 2; ++h) {
                half[h] = _mm512_setzero_si512();
                for (; column < least(end, (h + 1) * 32 * row.stride); column += row.stride) {
                    const std::size_t at = (column - row.padding) * row.channels + c;
                    const __m512 x = _mm512_maskz_loadu_ps(inside, row.x + at);
                    const __mmask16 above = _mm512_cmp_ps_mask(x, level, _CMP_GT_OQ) & inside;
                    const std::uint32_t place = std::uint32_t{1} << column / row.stride % 32;
                    const __m512i bit = _mm512_set1_epi32(static_cast<int>(place));
                    half[h] = _mm512_mask_or_epi32(half[h], above, half[h], bit);
                    __builtin_memcpy(pixels + (column - row.padding) * pixel + c / 8, &above, channels / 8);
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

// A vector has four groups.  In each, `low` has the sums ±g0 ±g1 and `high` the sums ±g2 ±g3.  Each lane of a table is
// the sum of one of each.
void table_pixels(const float* grad, const float* scale, std::size_t n, std::size_t channels, float* tables) {
    const __m512 first = _mm512_broadcast_f32x4(_mm_setr_ps(-1, 1, -1, 1));
    const __m512 second = _mm512_broadcast_f32x4(_mm_setr_ps(-1, -1, 1, 1));
    const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i groups = _mm512_slli_epi32(lanes, 2);
    alignas(64) float low[kFloats];
    for (std::size_t pixel = 0; pixel < n; ++pixel, grad += channels)
        for (std::size_t c = 0; c < channels; c += kFloats) {
            const std::size_t count = least(kFloats, channels - c);
            const auto inside = static_cast<__mmask16>((1u << count) - 1);
            const __m512 factor = _mm512_maskz_loadu_ps(inside, scale + c);
            const __m512 g = _mm512_mul_ps(_mm512_maskz_loadu_ps(inside, grad + c), factor);
            const auto sums = [&](__m512 a, __m512 b) { return _mm512_fmadd_ps(a, first, _mm512_mul_ps(b, second)); };
            // Value i of each group, in all four lanes of the group.
            const auto each = [&](int i) {
                return _mm512_permutexvar_ps(_mm512_add_epi32(groups, _mm512_set1_epi32(i)), g);
            };
            _mm512_store_ps(low, sums(each(0), each(1)));
            const __m512 high = sums(each(2), each(3));
            for (std::size_t at = 0; at < count; at += 4, tables += kFloats) {
                const __m512i group = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int>(at)));
                const __m512 lower = _mm512_broadcast_f32x4(_mm_load_ps(low + at));
                _mm512_store_ps(tables, _mm512_add_ps(lower, _mm512_permutexvar_ps(group, high)));
            }
        }
}

// kVectors vectors of channels look up in each table while it is in a register.
template <std::size_t kPixels, std::size_t kVectors>
inline void look_up_tile(const LookUpRow& row, std::size_t pixel, std::size_t channel) {
    __m512 sums[kPixels][kVectors];
    for (auto& of_pixel : sums)
        for (__m512& sum : of_pixel) sum = _mm512_setzero_ps();
    const __m512 one = _mm512_set1_ps(1.0f);
    const std::size_t table = row.groups * kFloats, index_row = (row.channels + kFloats - 1) / kFloats * kFloats;
    for (const LookUpRow::Tap* tap = row.taps; tap < row.taps + row.tap_count; ++tap) {
        const float* tables = tap->tables + pixel * table;
        const std::int32_t* index = tap->index + channel;
        for (std::size_t group = 0; group < row.groups; ++group, tables += kFloats, index += index_row) {
            __m512i at[kVectors];
            for (std::size_t v = 0; v < kVectors; ++v) at[v] = _mm512_loadu_si512(index + v * kFloats);
            for (std::size_t p = 0; p < kPixels; ++p) {
                __m512 sixteen = _mm512_load_ps(tables + p * table);
#if defined(__AVX512F__)  // emulated vectors are not in a register
                if (kVectors > 1) asm("" : "+v"(sixteen));  // otherwise compilers load it again for each look-up
#endif
                for (std::size_t v = 0; v < kVectors; ++v) {
                    const __m512 found = _mm512_permutexvar_ps(at[v], sixteen);
                    // Both compute the sum.  If additions and products have separate units, both units are busy.
                    __m512& sum = sums[p][v];
                    sum = (p + v) % 2 ? _mm512_fmadd_ps(found, one, sum) : _mm512_add_ps(sum, found);
                }
            }
        }
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
        const auto mask = static_cast<__mmask16>((1u << least(kFloats, row.channels - channel - v * kFloats)) - 1);
        for (std::size_t p = 0; p < kPixels; ++p)
            _mm512_mask_storeu_ps(row.out + (pixel + p) * row.stride + channel + v * kFloats, mask, sums[p][v]);
    }
}

template <std::size_t kPixels>
inline void look_up_pixels(const LookUpRow& row, std::size_t pixel) {
    std::size_t c = 0;
    for (; c + kFloats < row.channels; c += 2 * kFloats) look_up_tile<kPixels, 2>(row, pixel, c);
    if (c < row.channels) look_up_tile<kPixels, 1>(row, pixel, c);
}

void look_up_row(const LookUpRow& row) {
    std::size_t pixel = 0;
    for (; pixel + 8 <= row.pixels; pixel += 8) look_up_pixels<8>(row, pixel);
    for (; pixel < row.pixels; ++pixel) look_up_pixels<1>(row, pixel);
}

void look_up_subsets(std::size_t outputs, std::size_t groups, const float* table, const std::uint32_t* index,
                     std::size_t count, float* sums) {
    switch (outputs) {
        case 32: return look_up_vectors<Vector, 2>(groups, table, index, count, sums);
        case 16: return look_up_vectors<Vector, 1>(groups, table, index, count, sums);
        default: return look_up_vectors<Floats, 1>(groups, table, index, count, sums);
    }
}

}  // namespace wide
