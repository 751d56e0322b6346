// The part of the kernels that is the same for every instruction set, written over `Lanes`, the set's vector of floats.
// Each kernels_*.cpp defines its Lanes and includes this file inside an unnamed namespace, so that every set gets its own
// copy.  No standard library here: an inline function compiled with AVX-512 must not be picked for another file.
//
// Lanes has: Float, Int, kCount; load, store, all, add, subtract, multiply, multiply_add, smaller, larger, load_ints,
// store_ints, from_ints, minus_twice(base, n), above(a, b) → bits, above_ints(a, b) → bits; and for int8 convolutions
// kInt8Bytes, kInt8Values, Step, load_step, all_step and multiply_add_step(sums, x, w): sums += Σ x·w over a step.

#if defined(__GNUC__)
#define RBNN_INLINE inline __attribute__((always_inline))
#else
#define RBNN_INLINE inline
#endif

// For sets whose operand is made of words as they are.
inline void copy_words(const Word* in, const Word*, std::size_t pixels, std::size_t words, std::size_t stride,
                       std::uint8_t* out) {
    for (std::size_t pixel = 0; pixel < pixels; ++pixel, in += words, out += stride)
        __builtin_memcpy(out, in, words * sizeof(Word));
}

inline std::size_t word_tiles(std::size_t words) { return words * kBlock * sizeof(Word); }

float activate(const Finish& f, float v, std::size_t channel) {
    switch (f.activation) {
        case Activation::clamp: return v < f.low ? f.low : (v > f.high ? f.high : v);
        case Activation::leaky_relu: return v > 0.0f ? v : v * f.low;
        case Activation::prelu: return v > 0.0f ? v : v * f.slope[channel];
        case Activation::sigmoid: return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(v))));
        case Activation::hardswish: {
            const float up = v + 3.0f, gate = up < 0.0f ? 0.0f : (up > 6.0f ? 6.0f : up);
            return v * gate / 6.0f;
        }
        case Activation::abs: return v < 0.0f ? -v : v;
    }
    return v;
}

// Sums of one pixel as kernels leave them: counts of differing bits, or floats.
template <class Count>
struct Counts {
    const Count* counts;
    const std::int32_t* base;
    RBNN_INLINE Lanes::Int acc(std::size_t i) const {
        return Lanes::minus_twice(Lanes::load_ints(base + i), Lanes::load_ints(counts + i));
    }
    RBNN_INLINE Lanes::Float value(std::size_t i) const { return Lanes::from_ints(acc(i)); }
};

struct Sums {
    const float* sums;
    RBNN_INLINE Lanes::Float value(std::size_t i) const { return Lanes::load(sums + i); }
};

struct Int8Sums {
    const std::int32_t* sums;
    const float* base;
    RBNN_INLINE Lanes::Float value(std::size_t i) const {
        return Lanes::subtract(Lanes::from_ints(Lanes::load_ints(sums + i)), Lanes::load(base + i));
    }
};

template <bool kResidual, bool kFloat, class Source>
RBNN_INLINE Word finish_lanes(const Finish& f, Source source, std::size_t first, std::size_t count,
                              const float* residual, float* out) {
    // Copies: the compiler cannot know that writing `out` leaves `f` as it is.
    const float *scale = f.scale + first, *shift = f.shift + first, *level = f.level + first;
    const Lanes::Float low = Lanes::all(f.low), high = Lanes::all(f.high);
    const bool clamped = f.activation == Activation::clamp;
    Word word = 0;
    for (std::size_t i = 0; i < count; i += Lanes::kCount) {
        Lanes::Float v = Lanes::multiply(source.value(i), Lanes::load(scale + i));
        v = Lanes::add(v, Lanes::load(shift + i));
        if constexpr (kResidual) v = Lanes::add(v, Lanes::load(residual + i));
        if (clamped) {
            v = Lanes::smaller(Lanes::larger(v, low), high);
        } else {
            float values[Lanes::kCount];
            Lanes::store(values, v);
            for (std::size_t j = 0; j < Lanes::kCount; ++j) values[j] = activate(f, values[j], first + i + j);
            v = Lanes::load(values);
        }
        if constexpr (kFloat) Lanes::store(out + i, v);
        word |= static_cast<Word>(Lanes::above(v, Lanes::load(level + i))) << i;
    }
    return word;
}

RBNN_INLINE Word lowest_bits(std::size_t n) { return n >= kWordBits ? ~Word{0} : (Word{1} << n) - 1; }

// One pixel, `count` channels of one block, a multiple of a vector.
template <class Source>
RBNN_INLINE Word finish_whole(const Finish& f, const Source& source, std::size_t first, std::size_t count,
                              std::size_t pixel) {
    const std::size_t at = pixel * f.channels + first;
    if (f.residual && f.out) return finish_lanes<true, true>(f, source, first, count, f.residual + at, f.out + at);
    if (f.out) return finish_lanes<false, true>(f, source, first, count, nullptr, f.out + at);
    if (f.residual) return finish_lanes<true, false>(f, source, first, count, f.residual + at, nullptr);
    return finish_lanes<false, false>(f, source, first, count, nullptr, nullptr);
}

// One pixel, the channels of one block.  `source` has values for all 64 channels, whether they exist or not.
template <class Source>
RBNN_INLINE void finish_pixel(const Finish& f, const Source& source, std::size_t block, std::size_t pixel) {
    const std::size_t first = block * kBlock;
    const std::size_t count = f.channels - first < kBlock ? f.channels - first : kBlock;
    Word word = 0;
    if (count == kBlock) {
        word = finish_whole(f, source, first, kBlock, pixel);
    } else if (count % Lanes::kCount == 0) {
        word = finish_whole(f, source, first, count, pixel);
    } else {
        // Whole vectors would reach into the next pixel: go by way of copies.
        float residual[kBlock] = {}, out[kBlock];
        if (f.residual)
            for (std::size_t i = 0; i < count; ++i) residual[i] = f.residual[pixel * f.channels + first + i];
        word = f.residual ? finish_lanes<true, true>(f, source, first, count, residual, out)
                          : finish_lanes<false, true>(f, source, first, count, residual, out);
        if (f.out)
            for (std::size_t i = 0; i < count; ++i) f.out[pixel * f.channels + first + i] = out[i];
    }
    if (f.bits) f.bits[pixel * words_for(f.channels) + block] = word & lowest_bits(count);
}

template <class Count>
void finish_counts(const BinaryConv& job, const Count* counts, std::size_t block, std::size_t pixel) {
    const Finish& f = job.finish;
    const std::size_t first = block * kBlock, stride = words_for(f.channels) * kBlock;
    const Counts<Count> source{counts, job.base + job.pixel_base[pixel] * stride + first};
    if (f.threshold == nullptr) return finish_pixel(f, source, block, pixel);
    const std::size_t count = f.channels - first < kBlock ? f.channels - first : kBlock;
    Word word = 0;
    for (std::size_t i = 0; i < count; i += Lanes::kCount)
        word |= static_cast<Word>(Lanes::above_ints(source.acc(i), Lanes::load_ints(f.threshold + first + i))) << i;
    f.bits[pixel * words_for(f.channels) + block] = word & lowest_bits(count);
}

void finish_sums(const Finish& f, const float* acc, std::size_t block, std::size_t first, std::size_t last) {
    for (std::size_t pixel = first; pixel < last; ++pixel, acc += kBlock)
        finish_pixel(f, Sums{acc}, block, pixel);
}

// kPixels pixels × kVectors vectors of output channels in registers; each weight is loaded once for all pixels.
template <int kPixels, int kVectors>
void float_tile(const FloatConv& job, const float* weights, std::size_t first, float* sums) {
    const float* in[kPixels];
    for (int p = 0; p < kPixels; ++p) in[p] = job.input + job.pixel_offset[first + p];
    Lanes::Float acc[kPixels][kVectors];
    for (int p = 0; p < kPixels; ++p)
        for (int v = 0; v < kVectors; ++v) acc[p][v] = Lanes::all(0.0f);
    for (std::size_t s = 0; s < job.segment_count; ++s) {
        const std::size_t end = job.segments[s].offset + job.segments[s].length;
        for (std::size_t k = job.segments[s].offset; k < end; ++k, weights += kBlock) {
            Lanes::Float w[kVectors];
            for (int v = 0; v < kVectors; ++v) w[v] = Lanes::load(weights + v * Lanes::kCount);
            for (int p = 0; p < kPixels; ++p) {
                const Lanes::Float x = Lanes::all(in[p][k]);
                for (int v = 0; v < kVectors; ++v) acc[p][v] = Lanes::multiply_add(x, w[v], acc[p][v]);
            }
        }
    }
    for (int p = 0; p < kPixels; ++p)
        for (int v = 0; v < kVectors; ++v) Lanes::store(sums + p * kBlock + v * Lanes::kCount, acc[p][v]);
}

template <int kPixels>
void float_pixels(const FloatConv& job, std::size_t block, std::size_t pixel) {
    constexpr std::size_t kWide = kFloatVectors * Lanes::kCount;
    static_assert(kBlock % kWide == 0);
    alignas(64) float sums[kPixels * kBlock];
    const std::size_t rest = job.finish.channels - block * kBlock;
    for (std::size_t c = 0; c < kBlock && c < rest; c += kWide)
        float_tile<kPixels, kFloatVectors>(job, job.weights + block * job.taps * kBlock + c, pixel, sums + c);
    finish_sums(job.finish, sums, block, pixel, pixel + kPixels);
}

// Splits first … last into tiles of nearly equal size, none above `kMost`, and hands each to Tile::run<size>.
template <class Tile, int kMost, class Job>
void over_tiles(const Job& job, std::size_t block, std::size_t first, std::size_t last) {
    const std::size_t pixels = last - first, tiles = (pixels + kMost - 1) / kMost;
    for (std::size_t t = 0, pixel = first; t < tiles; ++t) {
        const std::size_t end = first + pixels * (t + 1) / tiles;
        switch (end - pixel) {
            case 1: Tile::template run<1>(job, block, pixel); break;
            case 2: if constexpr (kMost >= 2) Tile::template run<2>(job, block, pixel); break;
            case 3: if constexpr (kMost >= 3) Tile::template run<3>(job, block, pixel); break;
            case 4: if constexpr (kMost >= 4) Tile::template run<4>(job, block, pixel); break;
            case 5: if constexpr (kMost >= 5) Tile::template run<5>(job, block, pixel); break;
            case 6: if constexpr (kMost >= 6) Tile::template run<6>(job, block, pixel); break;
            case 7: if constexpr (kMost >= 7) Tile::template run<7>(job, block, pixel); break;
            case 8: if constexpr (kMost >= 8) Tile::template run<8>(job, block, pixel); break;
            default: break;
        }
        pixel = end;
    }
}

struct FloatTile {
    template <int kPixels>
    static void run(const FloatConv& job, std::size_t block, std::size_t pixel) {
        float_pixels<kPixels>(job, block, pixel);
    }
};

void float_conv(const FloatConv& job, std::size_t block, std::size_t first, std::size_t last) {
    over_tiles<FloatTile, kFloatPixels>(job, block, first, last);
}

constexpr std::size_t kStepBytes = Lanes::kInt8Bytes * Lanes::kInt8Values;

// As float_tile: a step is a few values of the input, broadcast, and as many weights of each output channel.
template <int kPixels, int kVectors>
void int8_tile(const Int8Conv& job, const std::uint8_t* weights, std::size_t first, std::int32_t* sums) {
    const std::uint8_t* in[kPixels];
    for (int p = 0; p < kPixels; ++p) in[p] = job.operand + job.pixel_offset[first + p];
    Lanes::Int acc[kPixels][kVectors];
    for (int p = 0; p < kPixels; ++p)
        for (int v = 0; v < kVectors; ++v) acc[p][v] = Lanes::no_ints();
    for (std::size_t s = 0; s < job.segment_count; ++s) {
        const std::size_t end = job.segments[s].offset + job.segments[s].length;
        for (std::size_t k = job.segments[s].offset; k < end; k += kStepBytes, weights += kBlock * kStepBytes) {
            Lanes::Step w[kVectors];
            for (int v = 0; v < kVectors; ++v) w[v] = Lanes::load_step(weights + v * Lanes::kCount * kStepBytes);
            for (int p = 0; p < kPixels; ++p) {
                const Lanes::Step x = Lanes::all_step(in[p] + k);
                for (int v = 0; v < kVectors; ++v) acc[p][v] = Lanes::multiply_add_step(acc[p][v], x, w[v]);
            }
        }
    }
    for (int p = 0; p < kPixels; ++p)
        for (int v = 0; v < kVectors; ++v) Lanes::store_ints(sums + p * kBlock + v * Lanes::kCount, acc[p][v]);
}

struct Int8Tile {
    template <int kPixels>
    static void run(const Int8Conv& job, std::size_t block, std::size_t pixel) {
        constexpr std::size_t kWide = kFloatVectors * Lanes::kCount;
        alignas(64) std::int32_t sums[kPixels * kBlock];
        const std::size_t rest = job.finish.channels - block * kBlock, stride = words_for(job.finish.channels) * kBlock;
        for (std::size_t c = 0; c < kBlock && c < rest; c += kWide)
            int8_tile<kPixels, kFloatVectors>(job, job.weights + block * job.block_bytes + c * kStepBytes, pixel, sums + c);
        for (int p = 0; p < kPixels; ++p)
            finish_pixel(job.finish,
                         Int8Sums{sums + p * kBlock, job.base + job.pixel_base[pixel + p] * stride + block * kBlock}, block,
                         pixel + p);
    }
};

void int8_conv(const Int8Conv& job, std::size_t block, std::size_t first, std::size_t last) {
    over_tiles<Int8Tile, kFloatPixels>(job, block, first, last);
}

// Little-endian: the low byte first.
void widen_bytes(const std::uint8_t* in, std::size_t n, std::uint8_t* out) {
    for (std::size_t i = 0; i < n; ++i) {
        out[i * Lanes::kInt8Bytes] = in[i];
        for (std::size_t j = 1; j < Lanes::kInt8Bytes; ++j) out[i * Lanes::kInt8Bytes + j] = 0;
    }
}

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
        for (std::size_t first = 0; first < channels; first += kBlock) {
            const std::size_t count = channels - first < kBlock ? channels - first : kBlock;
            if (count == kBlock) {
                *bits++ = pack_lanes<kScaled>(x + first, scale + first, shift + first, level + first, kBlock);
            } else if (count % Lanes::kCount == 0) {
                *bits++ = pack_lanes<kScaled>(x + first, scale + first, shift + first, level + first, count);
            } else {
                float copy[kBlock] = {};
                for (std::size_t i = 0; i < count; ++i) copy[i] = x[first + i];
                *bits++ = pack_lanes<kScaled>(copy, scale + first, shift + first, level + first, count) & lowest_bits(count);
            }
        }
}

void pack(const float* x, const float* scale, const float* shift, const float* level, std::size_t channels,
          std::size_t pixels, Word* bits) {
    if (scale)
        pack_pixels<true>(x, scale, shift, level, channels, pixels, bits);
    else  // scale and shift are not read, but pointers to something are needed for their arithmetic
        pack_pixels<false>(x, level, level, level, channels, pixels, bits);
}

// In double, sixteen partial sums: the order is the same on every machine.
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
    constexpr float kShifter = 12582912.0f;  // 1.5·2²³: a float this large has no fraction left, the sum is rounded to even
    for (std::size_t i = 0; i < n; ++i) {
        float v = x[i] * scale[i] + shift[i];
        v = v < 0.0f ? 0.0f : v;
        v = v > 255.0f ? 255.0f : v;
        out[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>((v + kShifter) - kShifter));
    }
}

void max_into(float* out, const float* x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out[i] = out[i] < x[i] ? x[i] : out[i];
}

void add_into(float* out, const float* x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out[i] += x[i];
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
