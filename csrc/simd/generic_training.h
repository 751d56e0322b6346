// Elementwise and batch-norm kernels of training, with vectors of eight floats (vectors.h) or vectorised by the
// compiler.

void sign(std::size_t n, const float* x, float threshold, float* out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = x[i] > threshold ? 1.0f : -1.0f;
}

RBNN_INLINE float tent_at(Tent tent, float x, float grad) {
    const float size = __builtin_fabsf(x), height = tent.peak - tent.slope * size;
    return size <= tent.support ? grad * (height < 0.0f ? 0.0f : height) : 0.0f;
}

using Ints = std::int32_t __attribute__((vector_size(32)));

// e^x for −87 ≤ x ≤ 0, exact to the last two bits: 2^n through the exponent, the rest by its series.
RBNN_INLINE Floats exponential(Floats x) {
    const Floats magic = Floats{} + 12582912.0f;  // 1.5·2²³: adding it rounds to an integer
    const Floats n = (x * 1.44269504f + magic) - magic;
    const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    constexpr float kFactors[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    Floats sum = Floats{} + 1.0f / 5040;
    for (const float factor : kFactors) sum = sum * r + factor;
    const Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
    return sum * load(&exponent);
}

// 1 − tanh²(z/2) = 4e/(1 + e)², e = e^−|z|.
RBNN_INLINE Floats bell(Floats z) {
    const Floats down = z > 0.0f ? -z : z, e = exponential(down < -87.0f ? Floats{} - 87.0f : down), one = 1.0f + e;
    return 4.0f * e / (one * one);
}

// out = grad·(1 − tanh²(steepness·(x − mean)·inverse_std))
void bend(std::size_t n, float steepness, const float* x, float mean, float inverse_std, const float* grad,
          float* out) {
    const float factor = 2.0f * steepness * inverse_std;
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(out + i, load(grad + i) * bell((load(x + i) - mean) * factor));
    for (; i < n; ++i) out[i] = grad[i] * bell(Floats{} + (x[i] - mean) * factor)[0];
}

void tent(std::size_t n, Tent shape, const float* grad, const float* x, float* out) {
    if (shape.steepness != 0.0f) bend(n, shape.steepness, x, 0.0f, 1.0f, grad, out), grad = out;
    RBNN_IVDEP  // out may be grad, because each value depends only on the same index
    for (std::size_t i = 0; i < n; ++i) out[i] = tent_at(shape, x[i], grad[i]);
}

// Sums of this many values are floats, and the total is in double.  That is exact enough, and the inner loop is
// vectorised.
constexpr std::size_t kSummed = 256, kPartialSums = 16;

// The sum of term(i) for n values.
template <class Term>
RBNN_INLINE double sum_of(std::size_t n, const Term& term) {
    double total = 0.0;
    std::size_t i = 0;
    for (; i + kSummed <= n; i += kSummed) {
        float lanes[kPartialSums] = {};
        for (std::size_t j = 0; j < kSummed; j += kPartialSums)
            for (std::size_t lane = 0; lane < kPartialSums; ++lane) lanes[lane] += term(i + j + lane);
        for (float lane : lanes) total += lane;
    }
    for (; i < n; ++i) total += term(i);
    return total;
}

double squares(std::size_t n, const float* x, float mean) {
    return sum_of(n, [&](std::size_t i) RBNN_INLINE_LAMBDA { return (x[i] - mean) * (x[i] - mean); });
}

void standardised_tent(std::size_t n, Tent shape, const float* grad, const float* x, float mean, float inverse_std,
                       float* out, double* sum, double* product) {
    if (shape.steepness != 0.0f) bend(n, shape.steepness, x, mean, inverse_std, grad, out), grad = out;
    double total = 0.0, total_product = 0.0;
    for (std::size_t i = 0; i < n; i += kSummed) {
        const std::size_t count = least(kSummed, n - i);
        float lanes[kPartialSums] = {}, product_lanes[kPartialSums] = {};
        const auto step = [&](std::size_t at, std::size_t lane) RBNN_INLINE_LAMBDA {
            const float standard = (x[at] - mean) * inverse_std, value = tent_at(shape, standard, grad[at]);
            out[at] = value;
            lanes[lane] += value;
            product_lanes[lane] += value * standard;
        };
        std::size_t j = 0;
        for (; j + kPartialSums <= count; j += kPartialSums)
            for (std::size_t lane = 0; lane < kPartialSums; ++lane) step(i + j + lane, lane);
        for (std::size_t lane = 0; j + lane < count; ++lane) step(i + j + lane, lane);
        for (std::size_t lane = 0; lane < kPartialSums; ++lane)
            total += lanes[lane], total_product += product_lanes[lane];
    }
    *sum = total;
    *product = total_product;
}

void standardised_finish(std::size_t n, const float* x, float mean, float inverse_std, float shift, float pull,
                         const float* added, float* out) {
    const auto finished = [&](std::size_t i) RBNN_INLINE_LAMBDA {
        return inverse_std * (out[i] - shift - (x[i] - mean) * inverse_std * pull);
    };
    if (added)
        for (std::size_t i = 0; i < n; ++i) out[i] = finished(i) + added[i];
    else
        for (std::size_t i = 0; i < n; ++i) out[i] = finished(i);
}

void add_hardtanh(std::size_t n, const float* a, const float* b, float* out) {
    RBNN_IVDEP  // out may be a, because each value depends only on the same index
    for (std::size_t i = 0; i < n; ++i) {
        const float sum = a[i] + b[i];
        // In this form NaN stays NaN, because a loss that is not finite must be noticed.
        out[i] = sum < -1.0f ? -1.0f : (sum > 1.0f ? 1.0f : sum);
    }
}

void hardtanh_grad(std::size_t n, const float* grad, const float* out, float* grad_in) {
    for (std::size_t i = 0; i < n; ++i) grad_in[i] = __builtin_fabsf(out[i]) < 1.0f ? grad[i] : 0.0f;
}

// Calls body(kVectors, channel) for two vectors of channels at a time, and for the last one if their number is odd.
template <class Body>
RBNN_INLINE void over_channels(std::size_t channels, const Body& body) {
    std::size_t c = 0;
    for (; c + 2 * kLanes <= channels; c += 2 * kLanes) body(Constant<2>{}, c);
    if (c < channels) body(Constant<1>{}, c);
}

// Two sums over the rows for each channel.  add(index, zero, first sum, second sum) adds a vector, where zero is that of
// its channels.
template <class Add>
RBNN_INLINE void sum_channels(std::size_t rows, std::size_t channels, const float* zeros, double* sum, double* second,
                              const Add& add) {
    over_channels(channels, [&](auto vectors, std::size_t first) RBNN_INLINE_LAMBDA {
        constexpr std::size_t kVectors = decltype(vectors)::value;
        Floats totals[kVectors] = {}, seconds[kVectors] = {}, zero[kVectors];
        for (std::size_t v = 0; v < kVectors; ++v) zero[v] = load(zeros + first + v * kLanes);
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t v = 0; v < kVectors; ++v)
                add(row * channels + first + v * kLanes, zero[v], totals[v], seconds[v]);
        for (std::size_t c = 0; c < kVectors * kLanes; ++c)
            sum[first + c] = totals[c / kLanes][c % kLanes], second[first + c] = seconds[c / kLanes][c % kLanes];
    });
}

// Sums relative to `pivot`: if values are far from 0 compared with their spread, the sum of their squares would lose
// it.
void sum_rows(std::size_t rows, std::size_t channels, const float* y, const float* pivot, double* sum, double* square) {
    sum_channels(rows, channels, pivot, sum, square,
                 [&](std::size_t i, const Floats& zero, Floats& total, Floats& squares) RBNN_INLINE_LAMBDA {
        const Floats value = load(y + i) - zero;
        total += value;
        squares += value * value;
    });
}

void norm_add_hardtanh_grad(std::size_t rows, std::size_t channels, const float* grad, const float* out, const float* y,
                            const float* mean, float* grad_sum, double* sum, double* product) {
    sum_channels(rows, channels, mean, sum, product,
                 [&](std::size_t i, const Floats& zero, Floats& total, Floats& products) RBNN_INLINE_LAMBDA {
        const Floats at = load(out + i), value = ((at > -1.0f) & (at < 1.0f)) ? load(grad + i) : Floats{};
        store(grad_sum + i, value);
        total += value;
        products += value * (load(y + i) - zero);
    });
}

// In this form NaN stays NaN, because a loss that is not finite must be noticed.
RBNN_INLINE Floats hardtanh(Floats x) {
    const Floats one = Floats{} + 1.0f, above = x > one ? one : x;
    return above < -one ? -one : above;
}

void norm_add_hardtanh(std::size_t rows, std::size_t channels, const float* y, const float* scale, const float* shift,
                       const float* shortcut, float* out) {
    for (std::size_t row = 0; row < rows; ++row, y += channels, shortcut += channels, out += channels)
        for (std::size_t c = 0; c < channels; c += kLanes)
            store(out + c, hardtanh(load(y + c) * load(scale + c) + load(shift + c) + load(shortcut + c)));
}

void norm_grad(std::size_t rows, std::size_t channels, const float* grad_sum, const float* y, const float* mean,
               const float* factor, const float* pull, const float* shift, float* grad_y) {
    for (std::size_t row = 0; row < rows; ++row, grad_sum += channels, y += channels, grad_y += channels)
        for (std::size_t c = 0; c < channels; c += kLanes)
            store(grad_y + c, load(factor + c) * load(grad_sum + c) + load(pull + c) * (load(y + c) - load(mean + c)) +
                                  load(shift + c));
}
