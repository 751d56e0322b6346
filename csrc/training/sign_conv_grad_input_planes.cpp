// grad_input in plain C++: the lanes are pixels of a row.
//
// Four output channels are a group.  Its table has, for a few rows of pixels, the 16 sums ±g0 ±g1 ±g2 ±g3 of the
// gradients times the scales of their filters.  For an input channel and a tap, the four signs of the filters are the
// index.  Gradients are copied to planes, one per channel, with a margin of zeros for taps that extend beyond the
// edge.  Results are summed in planes and copied back.  With a stride, the columns with the same remainder modulo the
// stride are processed together.
#include <algorithm>
#include <cstring>
#include <memory>

#include "training/sign_columns.h"
#include "training/sign_conv.h"
#include "simd/vectors.h"

namespace rbnn {
namespace {

constexpr std::size_t kGroups = 4;             // tabulated together, so that tables and sums stay in the L1 cache
constexpr std::size_t kVectors = AddTables::kMostVectors;
constexpr std::size_t kSumsBytes = 1 << 17;    // sums of the input channels that are processed together

std::size_t vectors(const Columns& columns) { return divide_up(columns.count, kLanes); }

struct Plan {
    SignConv conv;
    SignRow row;                         // of gradients
    std::size_t rows, entry;             // rows tabulated together; floats in an entry of a table
    std::vector<std::size_t> sums_at;    // the start of each of row.columns in a row of sums
    std::size_t sum_row, sum_rows;       // length and number of the rows of sums of one channel
    std::size_t channels;                // input channels that are processed together
    std::size_t rounds;                  // of kGroups groups
    // The offset of each table entry in floats: (rounds, kernel_y, columns, in_channels, groups × taps of the columns).
    std::vector<std::uint16_t> offsets;
    std::vector<std::size_t> offsets_at;  // by round, ky, columns

    std::size_t gradients() const {
        return kGroups * kGroup * rounds * conv.out_height() * row.length + kLanes * kVectors;
    }
    std::size_t sums() const { return channels * sum_rows * sum_row; }
    std::size_t groups(std::size_t round) const {
        return std::min(kGroups, conv.out_channels / kGroup - round * kGroups);
    }
};

Plan make_plan(const SignConv& conv, const SignFilters& filters) {
    Plan plan{conv, sign_row(conv), 0, 0, {}, 0, 0, 0, 0, {}, {}};
    std::size_t most = 1;
    for (const Columns& columns : plan.row.columns) {
        plan.sums_at.push_back(plan.sum_row);
        plan.sum_row += vectors(columns) * kLanes;
        most = std::max(most, vectors(columns));
    }
    plan.rows = std::min(std::max<std::size_t>(kVectors / most, 1), conv.out_height());
    // What is read beyond the last row of an entry is discarded.
    plan.entry = divide_up(plan.rows * plan.row.length, kLanes) * kLanes;
    plan.sum_rows = std::max(conv.height + conv.padding_y,
                             (divide_up(conv.out_height(), plan.rows) * plan.rows - 1) * conv.stride_y + conv.kernel_y);
    plan.channels = std::max(kSumsBytes / (plan.sum_rows * plan.sum_row * sizeof(float)) / kLanes * kLanes, 2 * kLanes);
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

// planes (out_channels, out_height, row) = grad · scale.  The margins are already 0.
void to_planes(const Plan& plan, const float* grad, const float* scale, float* planes) {
    const SignConv& conv = plan.conv;
    const std::size_t width = conv.out_width(), plane = conv.out_height() * plan.row.length;
    for (std::size_t y = 0; y < conv.out_height(); ++y)
        conv.kernels.training.pixels_to_planes(grad + y * width * conv.out_channels, scale, width, conv.out_channels,
                                               plane, planes + y * plan.row.length + plan.row.left);
}

// grad_a (height, width, channels), for the channels from `first` on, = sums (channels, sum_rows, sum_row).
void from_planes(const Plan& plan, const float* sums, std::size_t first, std::size_t channels, float* grad_a) {
    const SignConv& conv = plan.conv;
    for (std::size_t y = 0; y < conv.height; ++y)
        for (std::size_t k = 0; k < plan.row.columns.size(); ++k) {
            const Columns& columns = plan.row.columns[k];
            conv.kernels.training.planes_to_pixels(sums + (y + conv.padding_y) * plan.sum_row + plan.sums_at[k],
                                                   plan.sum_rows * plan.sum_row, columns.count, channels,
                                                   conv.stride_x * conv.in_channels,
                                                   grad_a + (y * conv.width + columns.x) * conv.in_channels + first);
        }
}

// Makes the 16 sums of the four planes of each group, from row `y` on.
void make_tables(const Plan& plan, const float* planes, std::size_t groups, std::size_t y, float* tables) {
    const std::size_t row = plan.row.length, plane = plan.conv.out_height() * row;
    const std::size_t n = std::min(plan.rows, plan.conv.out_height() - y) * row;
    for (std::size_t group = 0; group < groups; ++group)
        plan.conv.kernels.training.table_planes(planes + group * kGroup * plane + y * row, plane, n, plan.entry,
                                                tables + group * kSums * plan.entry);
}

// Adds the output rows from `y` on, from the tables of one round, to the sums of input channels [first, first +
// channels).
void add_rows(const Plan& plan, const float* tables, std::size_t round, std::size_t y, std::size_t first,
              std::size_t channels, float* sums) {
    const SignConv& conv = plan.conv;
    const std::size_t rows = std::min(plan.rows, conv.out_height() - y), plane = plan.sum_rows * plan.sum_row;
    for (std::size_t ky = 0; ky < conv.kernel_y; ++ky)
        for (std::size_t k = 0; k < plan.row.columns.size(); ++k) {
            const Columns& columns = plan.row.columns[k];
            const std::size_t count = plan.groups(round) * columns.taps.size();
            const std::uint16_t* offsets = plan.offsets.data() +
                                           plan.offsets_at[(round * conv.kernel_y + ky) * plan.row.columns.size() + k] +
                                           first * count;
            AddTables job{tables, offsets, count, channels, plane, 0, {}, {}, sums};
            for (std::size_t row = 0; row < rows; ++row)
                for (std::size_t v = 0; v < vectors(columns); ++v) {
                    job.table_at[job.vectors] = row * plan.row.length + v * kLanes;
                    job.sums_at[job.vectors] =
                        ((y + row) * conv.stride_y + ky) * plan.sum_row + plan.sums_at[k] + v * kLanes;
                    if (++job.vectors < kVectors && !(row + 1 == rows && v + 1 == vectors(columns))) continue;
                    conv.kernels.training.add_tables(job);
                    job.vectors = 0;
                }
        }
}

}  // namespace

std::function<ImageGradient()> image_gradients_in_planes(const SignConv& conv, const SignFilters& filters) {
    const auto shared = std::make_shared<const Plan>(make_plan(conv, filters));
    return [shared, &filters]() -> ImageGradient {
        struct Scratch {
            std::vector<float> planes, sums, tables;
        };
        const Plan& plan = *shared;
        const auto scratch = std::make_shared<Scratch>(
            Scratch{std::vector<float>(plan.gradients(), 0.0f), std::vector<float>(plan.sums() + kLanes),
                    std::vector<float>(kGroups * kSums * plan.entry + kLanes * kVectors)});
        return [shared, scratch, &filters](const float* grad, float* grad_a) {
            const Plan& plan = *shared;
            const SignConv& conv = plan.conv;
            auto& [planes, sums, tables] = *scratch;
            to_planes(plan, grad, filters.scale.data(), planes.data());
            for (std::size_t first = 0; first < conv.in_channels; first += plan.channels) {
                const std::size_t channels = std::min(plan.channels, conv.in_channels - first);
                std::fill(sums.begin(), sums.end(), 0.0f);
                for (std::size_t y = 0; y < conv.out_height(); y += plan.rows)
                    for (std::size_t round = 0; round < plan.rounds; ++round) {
                        const std::size_t plane = round * kGroups * kGroup * conv.out_height() * plan.row.length;
                        make_tables(plan, planes.data() + plane, plan.groups(round), y, tables.data());
                        add_rows(plan, tables.data(), round, y, first, channels, sums.data());
                    }
                from_planes(plan, sums.data(), first, channels, grad_a);
            }
        };
    };
}

}  // namespace rbnn
