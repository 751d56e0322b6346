// Batch norm, shortcut and activation of counts (training_kernels.h), whose lowest bit says whether the activation has
// slope 1.

using Shorts = std::int16_t __attribute__((vector_size(16)));

// Eight counts with their bits.
struct Counted {
    Ints all;

    RBNN_INLINE explicit Counted(const std::int16_t* counts)
        : all(__builtin_convertvector(load<Shorts>(counts), Ints)) {}
    RBNN_INLINE Floats values() const { return __builtin_convertvector(all & ~1, Floats); }
    // `one` where the activation has slope 1, otherwise `other`.
    RBNN_INLINE Floats choose(Floats one, Floats other) const { return (all & 1) != 0 ? one : other; }
};

RBNN_INLINE void set_bits(std::int16_t* counts, Ints where) {
    const Shorts marked = load<Shorts>(counts) | __builtin_convertvector(where & 1, Shorts);
    __builtin_memcpy(counts, &marked, sizeof marked);
}

void count_rows(std::size_t rows, std::size_t channels, std::size_t largest, const float* y, std::int16_t* counts,
                std::int64_t* sum, std::int64_t* square) {
    // This many squares fit into an int.
    const std::size_t fit = 0x7fffffff / (largest * largest), together = fit > 0 ? fit : 1;
    for (std::size_t c = 0; c < channels; ++c) sum[c] = square[c] = 0;
    for (std::size_t row = 0; row < rows; row += together) {
        const std::size_t end = row + least(together, rows - row);
        over_channels(channels, [&](auto vectors, std::size_t first) RBNN_INLINE_LAMBDA {
            constexpr std::size_t kVectors = decltype(vectors)::value;
            Ints total[kVectors] = {}, squares[kVectors] = {};
            for (std::size_t i = row; i < end; ++i)
                for (std::size_t v = 0; v < kVectors; ++v) {
                    const std::size_t at = i * channels + first + v * kLanes;
                    const Ints value = __builtin_convertvector(load(y + at), Ints);
                    const Shorts narrow = __builtin_convertvector(value, Shorts);
                    __builtin_memcpy(counts + at, &narrow, sizeof narrow);
                    total[v] += value;
                    squares[v] += value * value;
                }
            for (std::size_t c = 0; c < kVectors * kLanes; ++c)
                sum[first + c] += total[c / kLanes][c % kLanes], square[first + c] += squares[c / kLanes][c % kLanes];
        });
    }
}

void counts_hardtanh(std::size_t rows, std::size_t channels, std::int16_t* counts, const float* scale,
                     const float* shift, const float* shortcut, float* out) {
    for (std::size_t row = 0; row < rows; ++row, counts += channels, shortcut += channels, out += channels)
        for (std::size_t c = 0; c < channels; c += kLanes) {
            const Floats z = Counted(counts + c).values() * load(scale + c) + load(shift + c) + load(shortcut + c);
            set_bits(counts + c, (z > -1.0f) & (z < 1.0f));
            store(out + c, hardtanh(z));
        }
}

void counts_prelu(std::size_t rows, std::size_t channels, std::int16_t* counts, const float* scale, const float* shift,
                  const float* shortcut, const float* slope, const float* after, float* out) {
    for (std::size_t row = 0; row < rows; ++row, counts += channels, shortcut += channels, out += channels)
        for (std::size_t c = 0; c < channels; c += kLanes) {
            const Floats z = Counted(counts + c).values() * load(scale + c) + load(shift + c) + load(shortcut + c);
            set_bits(counts + c, z > 0.0f);
            store(out + c, (z > 0.0f ? z : load(slope + c) * z) + load(after + c));
        }
}

void counts_hardtanh_sums(std::size_t rows, std::size_t channels, const float* grad, const std::int16_t* counts,
                          const float* mean, double* sums) {
    sum_channels(rows, channels, mean, sums, sums + channels,
                 [&](std::size_t i, const Floats& centre, Floats& total, Floats& products) RBNN_INLINE_LAMBDA {
        const Counted count(counts + i);
        const Floats value = count.choose(load(grad + i), Floats{});
        total += value;
        products += value * (count.values() - centre);
    });
}

void counts_prelu_sums(std::size_t rows, std::size_t channels, const float* grad, const std::int16_t* counts,
                       const float* mean, const float* scale, const float* shift, const float* shortcut,
                       const float* slope, double* sums) {
    for (std::size_t c = 0; c < channels; c += kLanes) {
        const Floats centre = load(mean + c), factor = load(scale + c), moved = load(shift + c),
                     steep = load(slope + c);
        Floats total[4] = {};
        for (std::size_t row = 0; row < rows; ++row) {
            const std::size_t i = row * channels + c;
            const Counted count(counts + i);
            const Floats given = load(grad + i), z = count.values() * factor + moved + load(shortcut + i);
            const Floats value = count.choose(given, steep * given);
            total[0] += value;
            total[1] += value * (count.values() - centre);
            total[2] += count.choose(Floats{}, given * z);
            total[3] += given;
        }
        for (std::size_t k = 0; k < 4; ++k)
            for (std::size_t lane = 0; lane < kLanes; ++lane) sums[k * channels + c + lane] = total[k][lane];
    }
}

void counts_grad(std::size_t rows, std::size_t channels, const float* grad, const std::int16_t* counts,
                 const float* slope, const float* mean, const float* factor, const float* pull, const float* shift,
                 float* grad_z, float* grad_y) {
    for (std::size_t row = 0; row < rows;
         ++row, grad += channels, counts += channels, grad_z += channels, grad_y += channels)
        for (std::size_t c = 0; c < channels; c += kLanes) {
            const Counted count(counts + c);
            const Floats given = load(grad + c), value = count.choose(given, load(slope + c) * given);
            store(grad_z + c, value);
            store(grad_y + c,
                  load(factor + c) * value + load(pull + c) * (count.values() - load(mean + c)) + load(shift + c));
        }
}
