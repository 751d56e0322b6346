// grad_input in plain C++: lanes are pixels of a row.
//
// Four output channels are a group; its table has, for a few rows of pixels, the 16 sums ±g0 ±g1 ±g2 ±g3 of the gradients
// times their filters' scales.  For an input channel and a tap the four signs of the filters are the index.  Gradients are
// brought into planes, one per channel, with a margin of zeros for taps that reach over the edge; results are summed up in
// planes and brought back.  With a stride, the columns of one remainder modulo the stride are worked on together.
#include <algorithm>
#include <cstring>

#include "training/sign_columns.h"
#include "training/sign_conv.h"
#include "base/threads.h"
#include "simd/vectors.h"

namespace rbnn {
namespace {

constexpr std::size_t kGroup = 4, kSums = 16;  // output channels of a group, their signed sums
constexpr std::size_t kGroups = 4;             // tabled together: tables and sums stay in the first cache
constexpr std::size_t kVectors = 4;            // of pixels in registers
constexpr std::size_t kSumsBytes = 1 << 17;    // of input channels worked on together

std::size_t vectors(const Columns& columns) { return divide_up(columns.count, kLanes); }

struct Plan {
    SignConv conv;
    SignRow row;                         // of gradients
    std::size_t rows, entry;             // rows tabled together, floats of a table's entry
    std::vector<std::size_t> sums_at;    // where each of row.columns starts in a row of sums
    std::size_t sum_row, sum_rows;       // length and number of the rows of sums of one channel
    std::size_t channels;                // input channels worked on together
    std::size_t rounds;                  // of kGroups groups
    // Where a table's entry lies, in floats: (rounds, kernel_y, columns, in_channels, groups × taps of the columns).
    std::vector<std::uint16_t> offsets;
    std::vector<std::size_t> offsets_at;  // by round, ky, columns

    std::size_t gradients() const { return kGroups * kGroup * rounds * conv.out_height() * row.length + kLanes * kVectors; }
    std::size_t sums() const { return channels * sum_rows * sum_row; }
    std::size_t groups(std::size_t round) const {
        return std::min(kGroups, conv.out_channels / kGroup - round * kGroups);
    }
};

Plan make_plan(const SignConv& conv, const SignFilters& filters) {
    Plan plan{};
    plan.conv = conv;
    plan.row = sign_row(conv);
    std::size_t most = 1;
    for (const Columns& columns : plan.row.columns) {
        plan.sums_at.push_back(plan.sum_row);
        plan.sum_row += vectors(columns) * kLanes;
        most = std::max(most, vectors(columns));
    }
    plan.rows = std::min(std::max<std::size_t>(kVectors / most, 1), conv.out_height());
    // What is read beyond the last row of an entry is thrown away.
    plan.entry = divide_up(plan.rows * plan.row.length, kLanes) * kLanes;
    plan.sum_rows = std::max(conv.height + conv.padding_y, (divide_up(conv.out_height(), plan.rows) * plan.rows - 1) * conv.stride_y + conv.kernel_y);
    plan.channels = std::clamp(kSumsBytes / (plan.sum_rows * plan.sum_row * sizeof(float)) / kLanes * kLanes,
                               2 * kLanes, divide_up(conv.in_channels, kLanes) * kLanes);
    plan.channels = std::min(plan.channels, conv.in_channels);
    plan.rounds = divide_up(conv.out_channels / kGroup, kGroups);
    for (std::size_t round = 0; round < plan.rounds; ++round)
        for (std::size_t ky = 0; ky < conv.kernel_y; ++ky)
            for (const Columns& columns : plan.row.columns) {
                plan.offsets_at.push_back(plan.offsets.size());
                for (std::size_t c = 0; c < conv.in_channels; ++c)
                    for (std::size_t group = 0; group < plan.groups(round); ++group)
                        for (const std::size_t kx : columns.taps) {
                            std::size_t signs = 0;
                            for (std::size_t i = 0; i < kGroup; ++i) {
                                const std::size_t o = (round * kGroups + group) * kGroup + i;
                                const std::size_t tap = o * conv.taps() + ky * conv.kernel_x + kx;
                                signs |= std::size_t{filters.positive[tap * conv.in_channels + c]} << i;
                            }
                            plan.offsets.push_back(static_cast<std::uint16_t>(
                                (group * kSums + signs) * plan.entry + plan.row.seen_by(columns, kx)));
                        }
            }
    return plan;
}

// planes (out_channels, out_height, row) = grad · scale, zeros in the margins (which are there already).
RBNN_CLONES void to_planes(const Plan& plan, const float* grad, const float* scale, float* planes) {
    const SignConv& conv = plan.conv;
    const std::size_t width = conv.out_width(), channels = conv.out_channels, plane = conv.out_height() * plan.row.length;
    for (std::size_t y = 0; y < conv.out_height(); ++y)
        for (std::size_t x = 0; x < width; x += kLanes)
            for (std::size_t o = 0; o < channels; o += kLanes) {
                const float* from = grad + (y * width + x) * channels + o;
                float* to = planes + o * plane + y * plan.row.length + plan.row.left + x;
                const std::size_t count = std::min(kLanes, width - x);
                const Floats factor = load(scale + o);
                Floats square[kLanes];
                for (std::size_t i = 0; i < kLanes; ++i) square[i] = i < count ? load(from + i * channels) * factor : Floats{};
                transpose(square);
                if (count == kLanes)
                    for (std::size_t i = 0; i < kLanes; ++i) store(to + i * plane, square[i]);
                else
                    for (std::size_t i = 0; i < kLanes; ++i)
                        for (std::size_t j = 0; j < count; ++j) to[i * plane + j] = square[i][j];
            }
}

// grad_a (height, width, channels) of the channels from `first` on = sums (channels, sum_rows, sum_row).
RBNN_CLONES void from_planes(const Plan& plan, const float* sums, std::size_t first, std::size_t channels, float* grad_a) {
    const SignConv& conv = plan.conv;
    const std::size_t plane = plan.sum_rows * plan.sum_row;
    for (std::size_t y = 0; y < conv.height; ++y)
        for (std::size_t k = 0; k < plan.row.columns.size(); ++k) {
            const Columns& columns = plan.row.columns[k];
            for (std::size_t j = 0; j < columns.count; j += kLanes)
                for (std::size_t c = 0; c < channels; c += kLanes) {
                    const float* from = sums + c * plane + (y + conv.padding_y) * plan.sum_row + plan.sums_at[k] + j;
                    float* to = grad_a + (y * conv.width + columns.x + j * conv.stride_x) * conv.in_channels + first + c;
                    const std::size_t count = std::min(kLanes, columns.count - j);
                    Floats square[kLanes];
                    for (std::size_t i = 0; i < kLanes; ++i) square[i] = load(from + i * plane);
                    transpose(square);
                    for (std::size_t i = 0; i < count; ++i) store(to + i * conv.stride_x * conv.in_channels, square[i]);
                }
        }
}

// For each group the 16 sums of its four planes, from row `y` on.
RBNN_CLONES void make_tables(const Plan& plan, const float* planes, std::size_t groups, std::size_t y, float* tables) {
    const std::size_t row = plan.row.length, plane = plan.conv.out_height() * row;
    const std::size_t end = std::min(plan.rows, plan.conv.out_height() - y) * row;
    for (std::size_t group = 0; group < groups; ++group) {
        const float* from = planes + group * kGroup * plane + y * row;
        float* table = tables + group * kSums * plan.entry;
        for (std::size_t i = 0; i < end; i += kLanes) {
            const Floats g0 = load(from + i), g1 = load(from + plane + i);
            const Floats g2 = load(from + 2 * plane + i), g3 = load(from + 3 * plane + i);
            const Floats low[4] = {-g0 - g1, g0 - g1, g1 - g0, g0 + g1};
            const Floats high[4] = {-g2 - g3, g2 - g3, g3 - g2, g2 + g3};
            for (std::size_t h = 0; h < 4; ++h)
                for (std::size_t l = 0; l < 4; ++l) store(table + (4 * h + l) * plan.entry + i, low[l] + high[h]);
        }
    }
}

// Where the vectors of a block of pixels lie: in an entry of a table, and in the sums of a channel.
struct Places {
    std::size_t table[kVectors], sums[kVectors];
};

template <std::size_t kCount>
RBNN_INLINE_ALWAYS void add_entries(const float* tables, const std::uint16_t* offsets, std::size_t count,
                                    std::size_t channels, std::size_t plane, const Places& places, float* sums) {
    const float* table[kCount];
    for (std::size_t v = 0; v < kCount; ++v) table[v] = tables + places.table[v];
    for (std::size_t c = 0; c < channels; ++c, sums += plane) {
        Floats acc[kCount];
        for (std::size_t v = 0; v < kCount; ++v) acc[v] = load(sums + places.sums[v]);
#pragma GCC unroll 4
        for (const std::uint16_t* end = offsets + count; offsets < end; ++offsets)
            for (std::size_t v = 0; v < kCount; ++v) acc[v] += load(table[v] + *offsets);
        for (std::size_t v = 0; v < kCount; ++v) store(sums + places.sums[v], acc[v]);
    }
}

RBNN_CLONES void add_tables(const float* tables, const std::uint16_t* offsets, std::size_t count, std::size_t channels,
                            std::size_t plane, const Places& places, std::size_t vectors, float* sums) {
    switch (vectors) {
        case 4: return add_entries<4>(tables, offsets, count, channels, plane, places, sums);
        case 3: return add_entries<3>(tables, offsets, count, channels, plane, places, sums);
        case 2: return add_entries<2>(tables, offsets, count, channels, plane, places, sums);
        default: return add_entries<1>(tables, offsets, count, channels, plane, places, sums);
    }
}

// Adds the output rows from `y` on, as one round's tables have them, to the sums of input channels first … first + channels.
void add_rows(const Plan& plan, const float* tables, std::size_t round, std::size_t y, std::size_t first,
              std::size_t channels, float* sums) {
    const SignConv& conv = plan.conv;
    const std::size_t rows = std::min(plan.rows, conv.out_height() - y), plane = plan.sum_rows * plan.sum_row;
    for (std::size_t ky = 0; ky < conv.kernel_y; ++ky)
        for (std::size_t k = 0; k < plan.row.columns.size(); ++k) {
            const Columns& columns = plan.row.columns[k];
            const std::size_t count = plan.groups(round) * columns.taps.size();
            const std::uint16_t* offsets =
                plan.offsets.data() + plan.offsets_at[(round * conv.kernel_y + ky) * plan.row.columns.size() + k] + first * count;
            Places places;
            std::size_t held = 0;
            for (std::size_t row = 0; row < rows; ++row)
                for (std::size_t v = 0; v < vectors(columns); ++v) {
                    places.table[held] = row * plan.row.length + v * kLanes;
                    places.sums[held] = ((y + row) * conv.stride_y + ky) * plan.sum_row + plan.sums_at[k] + v * kLanes;
                    if (++held < kVectors && !(row + 1 == rows && v + 1 == vectors(columns))) continue;
                    add_tables(tables, offsets, count, channels, plane, places, held, sums);
                    held = 0;
                }
        }
}

}  // namespace

void sign_conv_grad_input(const SignConv& conv, const SignFilters& filters, const float* grad, float* grad_a,
                          const std::function<void(std::size_t)>& finish) {
    if (conv.kernels) return sign_conv_grad_input_in_registers(conv, filters, grad, grad_a, finish);
    const Plan plan = make_plan(conv, filters);
    parallel_for(conv.images, 1, conv.threads, [&](std::size_t begin, std::size_t end) {
        std::vector<float> planes(plan.gradients(), 0.0f), sums(plan.sums() + kLanes), tables(kGroups * kSums * plan.entry + kLanes * kVectors);
        for (std::size_t image = begin; image < end; ++image) {
            to_planes(plan, grad + image * conv.out_values(), filters.scale.data(), planes.data());
            for (std::size_t first = 0; first < conv.in_channels; first += plan.channels) {
                const std::size_t channels = std::min(plan.channels, conv.in_channels - first);
                std::fill(sums.begin(), sums.end(), 0.0f);
                for (std::size_t y = 0; y < conv.out_height(); y += plan.rows)
                    for (std::size_t round = 0; round < plan.rounds; ++round) {
                        const std::size_t plane = round * kGroups * kGroup * conv.out_height() * plan.row.length;
                        make_tables(plan, planes.data() + plane, plan.groups(round), y, tables.data());
                        add_rows(plan, tables.data(), round, y, first, channels, sums.data());
                    }
                from_planes(plan, sums.data(), first, channels, grad_a + image * conv.in_values());
            }
            finish(image);
        }
    });
}

}  // namespace rbnn
