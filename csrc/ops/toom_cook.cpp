#include "ops/toom_cook.h"

#include <array>

namespace rbnn {
namespace {

constexpr std::size_t kTaps = 4, kFinite = kPoints - 1;
constexpr int kPoint[kFinite] = {0, 1, -1, 2, -2, 3}, kScale = 120;
// kMostTaps × 120 × 255 × 128 < 2³¹
constexpr std::size_t kMostTaps = 512;

using Factors = std::array<std::int16_t, kPoints>;

// Coefficients of the product of z − p over all points but number `without`.
constexpr Factors input_factors(std::size_t without) {
    Factors factors{};
    factors[0] = 1;
    for (std::size_t i = 0; i < kFinite; ++i) {
        if (i == without) continue;
        for (std::size_t j = kFinite; j > 0; --j)
            factors[j] = static_cast<std::int16_t>(factors[j - 1] - kPoint[i] * factors[j]);
        factors[0] = static_cast<std::int16_t>(-kPoint[i] * factors[0]);
    }
    return factors;
}

// 120·p^tap / Π (p − the other points), which is an integer.  The last point is ∞.
constexpr int weight_factor(std::size_t point, std::size_t tap) {
    if (point == kFinite) return tap == kTaps - 1 ? kScale : 0;
    int factor = kScale;
    for (std::size_t i = 0; i < kFinite; ++i)
        if (i != point) factor /= kPoint[point] - kPoint[i];
    for (std::size_t i = 0; i < tap; ++i) factor *= kPoint[point];
    return factor;
}

// The first kernel row of each term.  The other rows of the term follow, a stride apart.
std::vector<std::size_t> terms(const Geometry& geometry) {
    std::vector<std::size_t> rows;
    for (std::size_t row = 0; row < geometry.y.kernel; ++row)
        if (row % (kTaps * geometry.y.stride) < geometry.y.stride) rows.push_back(row);
    return rows;
}

std::size_t fours(const Geometry& geometry) { return (geometry.y.count + 3) / 4; }

}  // namespace

bool points_pay(const Geometry& geometry, std::size_t channels) {
    return geometry.y.kernel >= 2 * geometry.y.stride && geometry.y.kernel * geometry.x.kernel * channels <= kMostTaps;
}

std::size_t point_rows(const Geometry& geometry) { return fours(geometry) * terms(geometry).size() * kPoints; }

RowSums lay_out_points(const Geometry& geometry, std::size_t row, std::size_t pixel) {
    const std::vector<std::size_t> firsts = terms(geometry);
    const std::size_t run = geometry.x.kernel * pixel;
    RowSums sums;
    for (std::size_t point = 0; point < kPoints; ++point) {
        RowSum sum{{}, run / sizeof(std::int16_t), {}};
        for (std::size_t term = 0; term < firsts.size(); ++term) {
            std::vector<RowSum::Share> shares;
            for (std::size_t tap = 0; tap < kTaps; ++tap) {
                const std::size_t at = firsts[term] + tap * geometry.y.stride;
                const int factor = weight_factor(point, tap);
                if (at < geometry.y.kernel && factor != 0) shares.push_back({at, factor});
            }
            if (shares.empty()) continue;
            sum.segments.push_back(
                {static_cast<std::uint32_t>((term * kPoints + point) * row), static_cast<std::uint32_t>(run)});
            sum.rows.push_back(std::move(shares));
        }
        sums.all.push_back(std::move(sum));
    }
    for (std::size_t four = 0; four < fours(geometry); ++four)
        for (std::size_t x = 0; x < geometry.x.count; ++x)
            sums.offsets.push_back(
                static_cast<std::uint32_t>(four * firsts.size() * kPoints * row + geometry.x.start(x) * pixel));
    return sums;
}

void evaluate(const Kernels& kernels, const Geometry& geometry, std::size_t channels, const std::uint8_t* picture,
              std::int16_t* operand, int threads) {
    static_assert(kPoints == 7);
    static constexpr Factors kFactors[kPoints] = {
        input_factors(0), input_factors(1), input_factors(2), input_factors(3),
        input_factors(4), input_factors(5), input_factors(6)};
    const std::vector<std::size_t> firsts = terms(geometry);
    const std::vector<std::uint8_t> margin(geometry.x.side * channels, 0);
    const std::size_t row = geometry.x.padded() * channels, side = geometry.x.padding * channels,
                      inner = row - 2 * side;
    parallel_for(fours(geometry) * firsts.size(), 4, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            const std::uint8_t* rows[kPoints];
            for (std::size_t j = 0; j < kPoints; ++j) {
                const std::size_t y = geometry.y.start(i / firsts.size() * 4 + j) + firsts[i % firsts.size()];
                const bool inside = y >= geometry.y.padding && y < geometry.y.padding + geometry.y.side;
                rows[j] = inside ? picture + (y - geometry.y.padding) * inner : margin.data();
            }
            for (std::size_t point = 0; point < kPoints; ++point) {
                std::int16_t* to = operand + (i * kPoints + point) * row;
                std::fill_n(to, side, std::int16_t{0});
                kernels.mix_rows(rows, kFactors[point].data(), inner, to + side);
                std::fill_n(to + row - side, side, std::int16_t{0});
            }
        }
    });
}

}  // namespace rbnn
