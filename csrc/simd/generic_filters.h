// Kernels for the weights of a filter in training (training/rotated_weight.h).

void standardise(std::size_t n, const float* x, float mean, float inverse_std, float* out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = (x[i] - mean) * inverse_std;
}

// Interpolates from the nearer end, so that a share of 1 gives exactly b.
void mix(std::size_t n, const float* a, const float* b, float share, float* out) {
    RBNN_IVDEP  // out may be a, because each value depends only on the same index
    for (std::size_t i = 0; i < n; ++i)
        out[i] = share < 0.5f ? a[i] + share * (b[i] - a[i]) : b[i] - (1.0f - share) * (b[i] - a[i]);
}

double mix_backward(std::size_t n, const float* grad, const float* a, const float* b, float share, float* out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = share * grad[i];
    return sum_of(n, [&](std::size_t i) RBNN_INLINE_LAMBDA { return grad[i] * (b[i] - a[i]); });
}

double dot(std::size_t n, const float* a, const float* b) {
    return sum_of(n, [&](std::size_t i) RBNN_INLINE_LAMBDA { return a[i] * b[i]; });
}

template <std::size_t kRows>
RBNN_INLINE void product_rows(std::size_t inner, std::size_t columns, const float* a, std::size_t a_row, const float* b,
                              float* out) {
    for (std::size_t c = 0; c < columns; c += kLanes) {
        Floats sums[kRows] = {};
        for (std::size_t k = 0; k < inner; ++k) {
            const Floats value = load(b + k * columns + c);
            RBNN_UNROLL
            for (std::size_t row = 0; row < kRows; ++row) sums[row] += a[row * a_row + k] * value;
        }
        RBNN_UNROLL
        for (std::size_t row = 0; row < kRows; ++row) store(out + row * columns + c, sums[row]);
    }
}

void product(std::size_t rows, std::size_t inner, std::size_t columns, const float* a, std::size_t a_row,
             const float* b, float* out) {
    std::size_t row = 0;
    for (; row + 6 <= rows; row += 6) product_rows<6>(inner, columns, a + row * a_row, a_row, b, out + row * columns);
    for (; row < rows; ++row) product_rows<1>(inner, columns, a + row * a_row, a_row, b, out + row * columns);
}
