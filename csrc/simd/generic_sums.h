// The kernels over Lanes (generic.h) that multiply numbers: tiles of float and int8 convolutions, one or four output
// rows at a time.

// Keeps the sums of kPixels pixels × kVectors vectors of output channels in registers.  Each weight is loaded once for
// all pixels.  A small number of sums would wait for each other's additions, so every kChains-th tap then has its own
// sums.
template <int kPixels, int kVectors, int kChains>
void float_tile(const FloatConv& job, const float* weights, std::size_t first, float* sums) {
    const float* in[kPixels];
    for (int p = 0; p < kPixels; ++p) in[p] = job.input + job.pixel_offset[first + static_cast<std::size_t>(p)];
    Lanes::Float acc[kChains][kPixels][kVectors];
    RBNN_UNROLL
    for (int c = 0; c < kChains; ++c)
        RBNN_UNROLL
        for (int p = 0; p < kPixels; ++p)
            RBNN_UNROLL
            for (int v = 0; v < kVectors; ++v) acc[c][p][v] = Lanes::all(0.0f);
    const auto tap = [&](Lanes::Float(&to)[kPixels][kVectors], std::size_t k) RBNN_INLINE_LAMBDA {
        Lanes::Float w[kVectors];
        RBNN_UNROLL
        for (int v = 0; v < kVectors; ++v) w[v] = Lanes::load(weights + v * static_cast<int>(Lanes::kCount));
        RBNN_UNROLL
        for (int p = 0; p < kPixels; ++p) {
            const Lanes::Float x = Lanes::all(in[p][k]);
            RBNN_UNROLL
            for (int v = 0; v < kVectors; ++v) to[p][v] = Lanes::multiply_add(x, w[v], to[p][v]);
        }
        weights += job.weight_stride;
    };
    for (std::size_t s = 0; s < job.segment_count; ++s) {
        std::size_t k = job.segments[s].offset;
        const std::size_t end = k + job.segments[s].length;
        if constexpr (kChains > 1)
            for (; k + kChains <= end; k += kChains)
                RBNN_UNROLL
                for (int c = 0; c < kChains; ++c) tap(acc[c], k + static_cast<std::size_t>(c));
        for (; k < end; ++k) tap(acc[0], k);
    }
    RBNN_UNROLL
    for (int p = 0; p < kPixels; ++p)
        RBNN_UNROLL
        for (int v = 0; v < kVectors; ++v) {
            Lanes::Float total = acc[0][p][v];
            RBNN_UNROLL
            for (int c = 1; c < kChains; ++c) total = Lanes::add(total, acc[c][p][v]);
            Lanes::store(sums + p * static_cast<int>(kBlockChannels) + v * static_cast<int>(Lanes::kCount), total);
        }
}

// The sums of kPixels pixels, 64 per pixel, for the existing channels of a block.
template <int kPixels>
void sum_pixels(const FloatConv& job, std::size_t block, std::size_t pixel, float* sums) {
    constexpr std::size_t kWide = kFloatVectors * Lanes::kCount;
    constexpr int kAll = kBlockChannels / Lanes::kCount;
    static_assert(kBlockChannels % kWide == 0);
    const std::size_t rest = job.finish.channels - block * kBlockChannels;
    const float* weights = job.weights + block * job.taps * kBlockChannels;
    if (kPixels == 1 && rest > kWide)
        float_tile<kPixels, kPixels == 1 ? kAll : kFloatVectors, 1>(job, weights, pixel, sums);
    else
        for (std::size_t c = 0; c < kBlockChannels && c < rest; c += kWide)
            float_tile<kPixels, kFloatVectors, kPixels == 1 ? 4 : 1>(job, weights + c, pixel, sums + c);
}

constexpr std::size_t kStepBytes = Lanes::kInt8Bytes * Lanes::kInt8Values;

// Like float_tile.  A step is a few values of the input, broadcast, and as many weights of each output channel.
template <int kPixels, int kVectors>
void int8_tile(const Int8Conv& job, const std::uint8_t* weights, std::size_t first, std::int32_t* sums) {
    const std::uint8_t* in[kPixels];
    for (int p = 0; p < kPixels; ++p) in[p] = job.operand + job.pixel_offset[first + p];
    Lanes::Int acc[kPixels][kVectors];
    RBNN_UNROLL
    for (int p = 0; p < kPixels; ++p)
        RBNN_UNROLL
        for (int v = 0; v < kVectors; ++v) acc[p][v] = Lanes::no_ints();
    for (std::size_t s = 0; s < job.segment_count; ++s) {
        const std::size_t end = job.segments[s].offset + job.segments[s].length;
        for (std::size_t k = job.segments[s].offset; k < end; k += kStepBytes, weights += kBlockChannels * kStepBytes) {
            Lanes::Step w[kVectors];
            RBNN_UNROLL
            for (int v = 0; v < kVectors; ++v) w[v] = Lanes::load_step(weights + v * Lanes::kCount * kStepBytes);
            RBNN_UNROLL
            for (int p = 0; p < kPixels; ++p) {
                const Lanes::Step x = Lanes::all_step(in[p] + k);
                RBNN_UNROLL
                for (int v = 0; v < kVectors; ++v) acc[p][v] = Lanes::multiply_add_step(acc[p][v], x, w[v]);
            }
        }
    }
    RBNN_UNROLL
    for (int p = 0; p < kPixels; ++p)
        RBNN_UNROLL
        for (int v = 0; v < kVectors; ++v) Lanes::store_ints(sums + p * kBlockChannels + v * Lanes::kCount, acc[p][v]);
}

template <int kPixels>
void sum_pixels(const Int8Conv& job, std::size_t block, std::size_t pixel, std::int32_t* sums) {
    constexpr std::size_t kWide = kFloatVectors * Lanes::kCount;
    const std::size_t rest = job.finish.channels - block * kBlockChannels;
    const std::uint8_t* weights = job.weights + block * job.block_bytes;
    for (std::size_t c = 0; c < kBlockChannels && c < rest; c += kWide)
        int8_tile<kPixels, kFloatVectors>(job, weights + c * kStepBytes, pixel, sums + c);
}

RBNN_INLINE Sums rows_of(const FloatConv&, const float* sums, std::size_t) { return {sums}; }
RBNN_INLINE Int8Sums rows_of(const Int8Conv& job, const std::int32_t* sums, std::size_t block) {
    return {sums, job, block * kBlockChannels};
}

template <class Number>
struct ConvTile {
    template <int kPixels, class Conv>
    static void run(const Conv& job, std::size_t block, std::size_t pixel) {
        alignas(64) Number sums[kPixels * kBlockChannels];
        sum_pixels<kPixels>(job, block, pixel, sums);
        finish_tile(job.finish, rows_of(job, sums, block), block, InOrder<kPixels>(pixel).pixels, kPixels);
    }
};

// Computes four rows from their sums (ops/row_sums.h, ops/toom_cook.h), which are `kApart` apart, in place.
template <std::size_t kApart>
RBNN_INLINE void combine(float* at) {
    const auto sum = [&](std::size_t i) RBNN_INLINE_LAMBDA { return at[i * kApart]; };
    const float upper[2] = {sum(0) + sum(2), sum(1) + sum(2)}, lower[2] = {sum(3) + sum(5), sum(4) + sum(5)};
    const float shared[2] = {sum(6) + sum(8), sum(7) + sum(8)};
    at[0] = upper[0] + shared[0], at[kApart] = upper[1] + shared[1];
    at[2 * kApart] = lower[0] + shared[0], at[3 * kApart] = lower[1] + shared[1];
}

template <std::size_t kApart>
RBNN_INLINE void combine(std::int32_t* at) {
    const auto sum = [&](std::size_t i) RBNN_INLINE_LAMBDA { return static_cast<std::uint32_t>(at[i * kApart]); };
    // The points are 0, ±1, ±2, 3, ∞.  The results are the rows times 120 = 8·15, modulo 2³².  The division by 15 is
    // exact, so it is a multiplication by the inverse of 15.
    const std::uint32_t sum1 = sum(1) + sum(2), difference1 = sum(1) - sum(2), three = sum(5);
    const std::uint32_t sum2 = sum(3) + sum(4), difference2 = sum(3) - sum(4);
    const auto whole = [](std::uint32_t row) RBNN_INLINE_LAMBDA {
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::int32_t>(row) >> 3) * 0xeeeeeeefu);
    };
    const std::uint32_t last = sum(6);
    at[0] = whole(sum(0) + sum1 + sum2 + three), at[kApart] = whole(difference1 + 2 * difference2 + 3 * three);
    at[2 * kApart] = whole(sum1 + 4 * sum2 + 9 * three);
    at[3 * kApart] = whole(difference1 + 8 * difference2 + 27 * three + last);
}

template <class Number>
struct FourRowsTile {
    template <int kPixels, class Conv>
    static void run(const FourRows<Conv>& job, std::size_t block, std::size_t position) {
        constexpr std::size_t kApart = kPixels * kBlockChannels;
        const Finish& finish = job.sums[0].finish;
        const std::size_t rest = finish.channels - block * kBlockChannels,
                          channels = rest < kBlockChannels ? rest : kBlockChannels;
        alignas(64) Number sums[kRowSums<Conv> * kApart];
        for (std::size_t part = 0; part < kRowSums<Conv>; ++part)
            sum_pixels<kPixels>(job.sums[part], block, position, sums + part * kApart);
        // Sums of channels that do not exist are uninitialised.
        for (std::size_t pixel = 0; pixel < kApart; pixel += kBlockChannels)
            for (std::size_t i = pixel; i < pixel + channels; ++i) combine<kApart>(sums + i);
        std::uint32_t pixels[4 * kPixels];
        for (std::size_t p = 0; p < kPixels; ++p)
            for (std::size_t row = 0; row < 4; ++row) {
                const std::size_t at = position + p, pixel = (at / job.width * 3 + row) * job.width + at;
                pixels[row * kPixels + p] = pixel < job.pixels ? static_cast<std::uint32_t>(pixel) : kNoPixel;
            }
        finish_tile(finish, rows_of(job.sums[0], sums, block), block, pixels, 4 * kPixels);
    }
};

template <class Job, class Number, template <class> class Tile>
void conv(const Job& job, std::size_t block, std::size_t first, std::size_t last) {
    over_tiles<Tile<Number>, kFloatPixels>(job, block, first, last);
}
constexpr auto float_conv = conv<FloatConv, float, ConvTile>;
constexpr auto float_four_rows = conv<FourRows<FloatConv>, float, FourRowsTile>;
constexpr auto int8_conv = conv<Int8Conv, std::int32_t, ConvTile>;
constexpr auto int8_four_rows = conv<FourRows<Int8Conv>, std::int32_t, FourRowsTile>;

// Little-endian: the low byte first.
void widen_bytes(const std::uint8_t* in, std::size_t n, std::uint8_t* out) {
    for (std::size_t i = 0; i < n; ++i) {
        out[i * Lanes::kInt8Bytes] = in[i];
        for (std::size_t j = 1; j < Lanes::kInt8Bytes; ++j) out[i * Lanes::kInt8Bytes + j] = 0;
    }
}

void mix_rows(const std::uint8_t* const* rows, const std::int16_t* factors, std::size_t n,
              std::int16_t* __restrict out) {
    const std::uint8_t* row[7];
    int factor[7];
    RBNN_UNROLL
    for (int r = 0; r < 7; ++r) row[r] = rows[r], factor[r] = factors[r];
    for (std::size_t i = 0; i < n; ++i) {
        int sum = 0;
        RBNN_UNROLL
        for (int r = 0; r < 7; ++r) sum += row[r][i] * factor[r];
        out[i] = static_cast<std::int16_t>(sum);
    }
}
