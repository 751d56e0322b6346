// The end of operations, over Lanes (generic.h), and how positions are split into tiles.

// For sets whose operand consists of unchanged words.
inline void copy_words(const Word* in, const Word*, std::size_t pixels, std::size_t words, std::size_t stride,
                       std::uint8_t* out) {
    if (words == 1)  // the size is known, so memcpy is not a function call
        for (std::size_t pixel = 0; pixel < pixels; ++pixel, out += stride)
            __builtin_memcpy(out, in + pixel, sizeof(Word));
    else
        for (std::size_t pixel = 0; pixel < pixels; ++pixel, in += words, out += stride)
            __builtin_memcpy(out, in, words * sizeof(Word));
}

inline std::size_t word_tiles(std::size_t words) { return words * kBlockChannels * sizeof(Word); }

template <auto kValue>
struct Constant {
    static constexpr auto value = kValue;
};

inline double softplus(double x, double beta, double threshold) {
    return x * beta > threshold ? x : std::log1p(std::exp(x * beta)) / beta;
}

// A separate function, so that the code of simple activations stays small.
__attribute__((noinline)) float smooth(const Finish& f, float value) {
    const double x = static_cast<double>(value), low = static_cast<double>(f.low), below = x < 0.0 ? x : 0.0;
    double y = x;
    switch (f.activation) {
        case Activation::elu: y = x > 0.0 ? x : low * std::expm1(below); break;
        case Activation::selu: y = 1.0507009873554805 * (x > 0.0 ? x : 1.6732632423543772 * std::expm1(below)); break;
        case Activation::gelu: y = 0.5 * x * (1.0 + std::erf(x * 0.70710678118654752440)); break;
        case Activation::gelu_tanh:
            y = 0.5 * x * (1.0 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
            break;
        case Activation::silu: y = x * (1.0 / (1.0 + std::exp(-(x < -700.0 ? -700.0 : x)))); break;
        case Activation::softplus: y = softplus(x, low, static_cast<double>(f.high)); break;
        case Activation::tanh: y = std::tanh(x); break;
        case Activation::hardsigmoid: y = (x + 3.0 < 0.0 ? 0.0 : x + 3.0 > 6.0 ? 6.0 : x + 3.0) / 6.0; break;
        case Activation::mish: y = x * std::tanh(softplus(x, 1.0, 20.0)); break;
        case Activation::exp: y = std::exp(x); break;
        case Activation::power: y = std::pow(x, low); break;
        default: break;
    }
    return static_cast<float>(y);
}

float activate(const Finish& f, float v, std::size_t channel) {
    switch (f.activation) {
        // exp(700) is still finite.
        case Activation::sigmoid:
            return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(v < -700.0f ? -700.0f : v))));
        case Activation::hardswish: {
            const float up = v + 3.0f, gate = up < 0.0f ? 0.0f : (up > 6.0f ? 6.0f : up);
            return v * gate / 6.0f;
        }
        case Activation::abs: return v < 0.0f ? -v : v;
        // A vector may extend beyond the last channel, where the values are 0.  Their 1/0 would count as an overflow.
        default: return channel < f.channels ? smooth(f, v) : v;
    }
}

// How activations are computed: a clamp and a slope for negative values on vectors, all others value by value.
enum class End { clamp, slope, each };

inline End end_of(Activation activation) {
    if (activation == Activation::clamp) return End::clamp;
    return activation == Activation::prelu || activation == Activation::leaky_relu ? End::slope : End::each;
}

// Sums as kernels leave them, 64 per pixel: counts of differing bits, floats, or integers.  `at` is pixel i of a tile.
template <class Count>
struct Counts {
    const Count* counts;
    const BinaryConv& job;
    std::size_t first;
    struct Source {
        const Count* counts;
        const std::int32_t* base;
        RBNN_INLINE Lanes::Int acc(std::size_t i) const {
            return Lanes::minus_twice(Lanes::load_ints(base + i), Lanes::load_ints(counts + i));
        }
        RBNN_INLINE Lanes::Float value(std::size_t i) const { return Lanes::from_ints(acc(i)); }
    };
    RBNN_INLINE Source at(std::size_t i, std::size_t pixel) const {
        const std::size_t stride = words_for(job.finish.channels) * kBlockChannels;
        return {counts + i * kBlockChannels, job.base + job.pixel_base[pixel] * stride + first};
    }
};

struct Sums {
    const float* sums;
    struct Source {
        const float* sums;
        RBNN_INLINE Lanes::Float value(std::size_t i) const { return Lanes::load(sums + i); }
    };
    RBNN_INLINE Source at(std::size_t i, std::size_t) const { return {sums + i * kBlockChannels}; }
};

struct Int8Sums {
    const std::int32_t* sums;
    const Int8Conv& job;
    std::size_t first;
    struct Source {
        const std::int32_t* sums;
        const float* base;
        RBNN_INLINE Lanes::Float value(std::size_t i) const {
            return Lanes::subtract(Lanes::from_ints(Lanes::load_ints(sums + i)), Lanes::load(base + i));
        }
    };
    RBNN_INLINE Source at(std::size_t i, std::size_t pixel) const {
        const std::size_t stride = words_for(job.finish.channels) * kBlockChannels;
        return {sums + i * kBlockChannels, job.base + job.pixel_base[pixel] * stride + first};
    }
};

// A position without a pixel.
constexpr std::uint32_t kNoPixel = ~std::uint32_t{0};

template <bool kResidual, bool kFloat, bool kBits, End kEnd, class Source>
RBNN_INLINE Word finish_lanes(const Finish& f, const Source& source, std::size_t first, std::size_t count,
                              const float* residual, float* out) {
    // Local copies, because the compiler cannot know that writing to `out` does not change `f`.
    const float *scale = f.scale + first, *shift = f.shift + first, *level = f.level + first;
    const float* slope = f.activation == Activation::prelu ? f.slope + first : nullptr;
    const Lanes::Float zero = Lanes::all(0.0f), low = Lanes::all(f.low), high = Lanes::all(f.high);
    Word word = 0;
    for (std::size_t i = 0; i < count; i += Lanes::kCount) {
        Lanes::Float v = Lanes::multiply(source.value(i), Lanes::load(scale + i));
        v = Lanes::add(v, Lanes::load(shift + i));
        if constexpr (kResidual) v = Lanes::add(v, Lanes::load(residual + i));
        if constexpr (kEnd == End::clamp) {
            v = Lanes::smaller(high, Lanes::larger(low, v));  // with the arguments in this order, NaN stays NaN
        } else if constexpr (kEnd == End::slope) {
            // One of the two terms is 0, so the sum is exact.  Positive values are not multiplied, so they cannot
            // overflow.
            const Lanes::Float factor = slope ? Lanes::load(slope + i) : low;
            v = Lanes::add(Lanes::larger(zero, v), Lanes::multiply(Lanes::smaller(zero, v), factor));
        } else {
            float values[Lanes::kCount];
            Lanes::store(values, v);
            for (std::size_t j = 0; j < Lanes::kCount; ++j) values[j] = activate(f, values[j], first + i + j);
            v = Lanes::load(values);
        }
        if constexpr (kFloat) Lanes::store(out + i, v);
        if constexpr (kBits) word |= static_cast<Word>(Lanes::above(v, Lanes::load(level + i))) << i;
    }
    return word;
}

RBNN_INLINE Word lowest_bits(std::size_t n) { return n >= kWordBits ? ~Word{0} : (Word{1} << n) - 1; }

// Finishes `n` pixels with `count` channels of one block.  If the channels are not whole vectors, it works on copies,
// because the last vector would extend into the next pixel.
template <bool kResidual, bool kFloat, bool kBits, End kEnd, bool kWhole, class Rows>
void finish_pixels(const Finish& f, const Rows& rows, std::size_t block, std::size_t count, const std::uint32_t* pixels,
                   std::size_t n) {
    const std::size_t first = block * kBlockChannels, words = words_for(f.channels);
    for (std::size_t i = 0; i < n; ++i) {
        if (pixels[i] == kNoPixel) continue;
        const std::size_t pixel = pixels[i], at = pixel * f.channels + first;
        const auto source = rows.at(i, pixel);
        const float* residual = kResidual ? f.residual + at : nullptr;
        float* out = kFloat ? f.out + at : nullptr;
        Word word;
        if constexpr (kWhole) {
            word = count == kBlockChannels
                       ? finish_lanes<kResidual, kFloat, kBits, kEnd>(f, source, first, kBlockChannels, residual, out)
                       : finish_lanes<kResidual, kFloat, kBits, kEnd>(f, source, first, count, residual, out);
        } else {
            float residual_copy[kBlockChannels] = {}, out_copy[kBlockChannels];
            if constexpr (kResidual) __builtin_memcpy(residual_copy, residual, count * sizeof(float));
            word = finish_lanes<kResidual, true, kBits, kEnd>(f, source, first, count, residual_copy, out_copy);
            if constexpr (kFloat) __builtin_memcpy(out, out_copy, count * sizeof(float));
        }
        if constexpr (kBits) f.bits[pixel * words + block] = word & lowest_bits(count);
    }
}

// Finishes the pixels of a tile, for the channels of one block.  `rows` has values for all 64 channels, even if the
// block has fewer.
template <class Rows>
void finish_tile(const Finish& f, const Rows& rows, std::size_t block, const std::uint32_t* pixels, std::size_t n) {
    const std::size_t rest = f.channels - block * kBlockChannels, count = rest < kBlockChannels ? rest : kBlockChannels;
    const auto outputs = [&](auto residual, auto end, auto whole) {
        constexpr bool kResidual = decltype(residual)::value, kWhole = decltype(whole)::value;
        constexpr End kEnd = decltype(end)::value;
        if (f.out && f.bits)
            return finish_pixels<kResidual, true, true, kEnd, kWhole>(f, rows, block, count, pixels, n);
        if (f.out) return finish_pixels<kResidual, true, false, kEnd, kWhole>(f, rows, block, count, pixels, n);
        finish_pixels<kResidual, false, true, kEnd, kWhole>(f, rows, block, count, pixels, n);
    };
    const auto residual = [&](auto end, auto whole) {
        if (f.residual) return outputs(Constant<true>{}, end, whole);
        outputs(Constant<false>{}, end, whole);
    };
    const auto channels = [&](auto end) {
        if (count % Lanes::kCount == 0) return residual(end, Constant<true>{});
        residual(end, Constant<false>{});
    };
    switch (end_of(f.activation)) {
        case End::clamp: return channels(Constant<End::clamp>{});
        case End::slope: return channels(Constant<End::slope>{});
        case End::each: return channels(Constant<End::each>{});
    }
}

template <class Count>
void finish_counts(const BinaryConv& job, const Count* counts, std::size_t block, const std::uint32_t* pixels,
                   std::size_t n) {
    const Finish& f = job.finish;
    const std::size_t first = block * kBlockChannels, rest = f.channels - first,
                      count = rest < kBlockChannels ? rest : kBlockChannels;
    const Counts<Count> rows{counts, job, first};
    if (f.threshold == nullptr) return finish_tile(f, rows, block, pixels, n);
    for (std::size_t p = 0; p < n; ++p) {
        if (pixels[p] == kNoPixel) continue;
        const auto source = rows.at(p, pixels[p]);
        Word word = 0;
        for (std::size_t i = 0; i < count; i += Lanes::kCount)
            word |= static_cast<Word>(Lanes::above_ints(source.acc(i), Lanes::load_ints(f.threshold + first + i))) << i;
        f.bits[pixels[p] * words_for(f.channels) + block] = word & lowest_bits(count);
    }
}

// Consecutive pixels, as in most tiles.
template <int kPixels>
struct InOrder {
    std::uint32_t pixels[kPixels];
    RBNN_INLINE explicit InOrder(std::size_t first) {
        for (int p = 0; p < kPixels; ++p) pixels[p] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(p);
    }
};

void finish_sums(const Finish& f, const float* acc, std::size_t block, std::size_t first, std::size_t last) {
    for (std::size_t pixel = first; pixel < last; ++pixel, acc += kBlockChannels)
        finish_tile(f, Sums{acc}, block, InOrder<1>(pixel).pixels, 1);
}

// Splits [first, last) into tiles of nearly equal size, at most `kMost`, and calls Tile::run<size> for each.
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
