// Elementwise kernels over Lanes (generic.h): packing, sums, affine maps, pools, transposing.

template <bool kScaled>
RBNN_INLINE Word pack_lanes(const float* x, const float* scale, const float* shift, const float* level,
                            std::size_t count) {
    Word word = 0;
    for (std::size_t i = 0; i < count; i += Lanes::kCount) {
        Lanes::Float v = Lanes::load(x + i);
        if constexpr (kScaled) v = Lanes::add(Lanes::multiply(v, Lanes::load(scale + i)), Lanes::load(shift + i));
        word |= static_cast<Word>(Lanes::above(v, Lanes::load(level + i))) << i;
    }
    return word;
}

template <bool kScaled>
void pack_pixels(const float* x, const float* scale, const float* shift, const float* level, std::size_t channels,
                 std::size_t pixels, Word* bits) {
    for (std::size_t pixel = 0; pixel < pixels; ++pixel, x += channels)
        for (std::size_t first = 0; first < channels; first += kBlockChannels) {
            const std::size_t count = channels - first < kBlockChannels ? channels - first : kBlockChannels;
            if (count == kBlockChannels) {
                *bits++ = pack_lanes<kScaled>(x + first, scale + first, shift + first, level + first, kBlockChannels);
            } else if (count % Lanes::kCount == 0) {
                *bits++ = pack_lanes<kScaled>(x + first, scale + first, shift + first, level + first, count);
            } else {
                float copy[kBlockChannels] = {};
                for (std::size_t i = 0; i < count; ++i) copy[i] = x[first + i];
                *bits++ =
                    pack_lanes<kScaled>(copy, scale + first, shift + first, level + first, count) & lowest_bits(count);
            }
        }
}

void pack(const float* x, const float* scale, const float* shift, const float* level, std::size_t channels,
          std::size_t pixels, Word* bits) {
    if (scale)
        pack_pixels<true>(x, scale, shift, level, channels, pixels, bits);
    else  // scale and shift are not read, but pointer arithmetic needs valid pointers
        pack_pixels<false>(x, level, level, level, channels, pixels, bits);
}

// Sixteen partial sums in double.  The order is the same on every machine.
double sum(const float* x, std::size_t n) {
    constexpr std::size_t kParts = 16;
    double parts[kParts] = {};
    std::size_t i = 0;
    for (; i + kParts <= n; i += kParts)
        for (std::size_t j = 0; j < kParts; ++j) parts[j] += static_cast<double>(x[i + j]);
    for (std::size_t j = 0; i + j < n; ++j) parts[j] += static_cast<double>(x[i + j]);
    double total = 0.0;
    for (std::size_t j = 0; j < kParts; ++j) total += parts[j];
    return total;
}

void affine(const float* x, const float* scale, const float* shift, std::size_t channels, std::size_t pixels,
            float* out) {
    for (std::size_t pixel = 0; pixel < pixels; ++pixel, x += channels, out += channels)
        for (std::size_t c = 0; c < channels; ++c) out[c] = x[c] * scale[c] + shift[c];
}

void quantize(const float* x, const float* scale, const float* shift, std::size_t n, std::uint8_t* out) {
    constexpr float kShifter = 12582912.0f;  // 1.5·2²³: a float this large has no fraction, so a sum is rounded to even
    for (std::size_t i = 0; i < n; ++i) {
        float v = x[i] * scale[i] + shift[i];
        v = v < 0.0f ? 0.0f : v;
        v = v > 255.0f ? 255.0f : v;
        // The last byte of the sum is the rounded integer.  A conversion could overflow before the value is clamped.
        v += kShifter;
        std::uint32_t bits;
        __builtin_memcpy(&bits, &v, sizeof bits);
        out[i] = static_cast<std::uint8_t>(bits);
    }
}

// Reads kVectors vectors of each of `n` pixels, one pixel after the other, so that memory is read in long runs.
template <int kVectors>
RBNN_INLINE void max_vectors(const float* const* pixels, std::size_t n, std::size_t first, float* out) {
    Lanes::Float most[kVectors];
    RBNN_UNROLL
    for (int v = 0; v < kVectors; ++v) most[v] = Lanes::load(pixels[0] + first + v * static_cast<int>(Lanes::kCount));
    for (std::size_t i = 1; i < n; ++i)
        RBNN_UNROLL
        for (int v = 0; v < kVectors; ++v)
            most[v] = Lanes::larger(most[v], Lanes::load(pixels[i] + first + v * static_cast<int>(Lanes::kCount)));
    RBNN_UNROLL
    for (int v = 0; v < kVectors; ++v) Lanes::store(out + first + v * static_cast<int>(Lanes::kCount), most[v]);
}

// out = the maximum of `n` pixels of `channels` values.
void max_of(const float* const* pixels, std::size_t n, std::size_t channels, float* out) {
    std::size_t c = 0;
    for (; c + kBlockChannels <= channels; c += kBlockChannels)
        max_vectors<kBlockChannels / Lanes::kCount>(pixels, n, c, out);
    for (; c + Lanes::kCount <= channels; c += Lanes::kCount) max_vectors<1>(pixels, n, c, out);
    for (; c < channels; ++c) {
        float most = pixels[0][c];
        for (std::size_t i = 1; i < n; ++i) most = most < pixels[i][c] ? pixels[i][c] : most;
        out[c] = most;
    }
}

void differences(const float* x, std::size_t apart, std::size_t n, float* __restrict by_one, float* __restrict by_two,
                 float* __restrict by_both) {
    const float *one = x + apart, *two = one + apart, *three = two + apart;
    for (std::size_t i = 0; i < n; ++i) {
        const float difference = x[i] - two[i];
        by_one[i] = x[i] - one[i];
        by_two[i] = difference;
        by_both[i] = difference - (one[i] - three[i]);
    }
}

template <int kVectors>
RBNN_INLINE void largest_vectors(const float* const* rows, std::size_t count, std::size_t first, float* out) {
    Lanes::Float most[kVectors];
    RBNN_UNROLL
    for (int v = 0; v < kVectors; ++v) most[v] = Lanes::all(0.0f);
    for (std::size_t i = 0; i < count; ++i)
        RBNN_UNROLL
        for (int v = 0; v < kVectors; ++v) {
            const Lanes::Float x = Lanes::load(rows[i] + first + v * static_cast<int>(Lanes::kCount));
            most[v] = Lanes::larger(most[v], Lanes::larger(x, Lanes::subtract(Lanes::all(0.0f), x)));
        }
    RBNN_UNROLL
    for (int v = 0; v < kVectors; ++v) Lanes::store(out + first + v * static_cast<int>(Lanes::kCount), most[v]);
}

void largest_of_rows(const float* const* rows, std::size_t count, std::size_t n, float* out) {
    std::size_t at = 0;
    for (; at + 4 * Lanes::kCount <= n; at += 4 * Lanes::kCount) largest_vectors<4>(rows, count, at, out);
    for (; at + Lanes::kCount <= n; at += Lanes::kCount) largest_vectors<1>(rows, count, at, out);
    for (; at < n; ++at) {
        float most = 0.0f;
        for (std::size_t i = 0; i < count; ++i) {
            const float x = rows[i][at], size = x < 0.0f ? -x : x;
            most = most < size ? size : most;
        }
        out[at] = most;
    }
}

bool all_finite(const float* x, std::size_t n) {
    std::uint32_t odd = 0;
    for (std::size_t i = 0; i < n; ++i) {
        std::uint32_t bits;
        __builtin_memcpy(&bits, x + i, sizeof bits);
        odd |= static_cast<std::uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
    }
    return odd == 0;
}

// The columns of eight rows of floats, as rows.
RBNN_INLINE void transpose_eight(const float* from, std::size_t columns, std::size_t rows, float* to) {
    Floats r[8], pairs[8], fours[8];
    for (std::size_t i = 0; i < 8; ++i) r[i] = load(from + i * columns);
    for (std::size_t i = 0; i < 8; i += 2) {
        pairs[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        pairs[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (std::size_t i = 0; i < 8; i += 4)
        for (std::size_t j = 0; j < 2; ++j) {
            fours[i + j] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            fours[i + j + 2] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (std::size_t j = 0; j < 4; ++j) {
        store(to + j * rows, __builtin_shufflevector(fours[j], fours[j + 4], 0, 1, 2, 3, 8, 9, 10, 11));
        store(to + (j + 4) * rows, __builtin_shufflevector(fours[j], fours[j + 4], 4, 5, 6, 7, 12, 13, 14, 15));
    }
}

// Transposes a matrix.  For three rows, the colours of an image, there is a loop that compilers turn into shuffles.
// Otherwise it works on one square at a time, which stays in the L1 cache on both sides.
template <class Value>
void transpose(const Value* __restrict from, std::size_t rows, std::size_t columns, Value* __restrict to) {
    if (rows == 3) {
        const Value *red = from, *green = from + columns, *blue = from + 2 * columns;
        for (std::size_t i = 0; i < columns; ++i) to[3 * i] = red[i], to[3 * i + 1] = green[i], to[3 * i + 2] = blue[i];
        return;
    }
    constexpr std::size_t kSide = sizeof(Value) == sizeof(float) ? 8 : 16;
    for (std::size_t left = 0; left < columns; left += kSide)
        for (std::size_t top = 0; top < rows; top += kSide) {
            if constexpr (sizeof(Value) == sizeof(float))
                if (top + kSide <= rows && left + kSide <= columns) {
                    transpose_eight(from + top * columns + left, columns, rows, to + left * rows + top);
                    continue;
                }
            for (std::size_t column = left; column < columns && column < left + kSide; ++column)
                for (std::size_t row = top; row < rows && row < top + kSide; ++row)
                    to[column * rows + row] = from[row * columns + column];
        }
}

void add_into(double* sums, const float* x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) sums[i] += static_cast<double>(x[i]);
}

void multiply_add_into(float* out, const float* x, const float* factor, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out[i] += x[i] * factor[i];
}

void add(const float* a, const float* b, std::size_t n, float* out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void multiply(const float* a, const float* b, std::size_t n, float* out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}

void clamp(const float* x, float low, float high, std::size_t n, float* out) {
    for (std::size_t i = 0; i < n; ++i) {
        const float v = x[i] < low ? low : x[i];
        out[i] = v > high ? high : v;
    }
}
