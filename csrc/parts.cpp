#include "parts.h"

namespace rbnn {
namespace {

// So few weights that the parts of a sum of whole numbers, too, are below 2³¹.
constexpr std::size_t kShortestRow = 16, kLargestWeight = std::size_t{1} << 15;

}  // namespace

bool pairing_pays(const Window& window, std::size_t channels, std::size_t outputs) {
    const std::size_t row = window.x.kernel * channels;
    return window.y.dilation == 1 && window.x.dilation == 1 && window.y.kernel > window.y.stride && window.y.count > 1 &&
           row >= kShortestRow && row * window.y.kernel * outputs <= kLargestWeight;
}

std::size_t operand_rows(const Window& window, bool paired) {
    return paired ? 2 * window.y.padded() + window.y.stride : window.y.padded();
}

Parts lay_out_parts(const Window& window, std::size_t row, std::size_t pixel, std::size_t tap, std::size_t value, bool paired) {
    Taps taps = lay_out(window, row, pixel, tap);
    if (!paired) {
        std::size_t all = 0;
        for (const Segment& segment : taps.segments) all += segment.length;
        return {std::move(taps.offsets), {Part{std::move(taps.segments), all / value, {{{0, 1}}}}}};
    }
    const std::size_t kernel = window.y.kernel, stride = window.y.stride, run = window.x.kernel * pixel;
    const std::size_t differences = window.y.padded() + stride;
    Part upper{{}, run / value, {}}, lower = upper, shared = upper;
    const auto term = [&](Part& part, std::size_t first_row, std::vector<Part::Share> shares) {
        part.segments.push_back({static_cast<std::uint32_t>(first_row * row), static_cast<std::uint32_t>(run)});
        part.rows.push_back(std::move(shares));
    };
    std::vector<bool> done(kernel);
    for (std::size_t r = 0; r < kernel; ++r) {
        if (done[r]) continue;
        if (r + stride < kernel) {
            term(upper, differences + r, {{r, 1}});
            term(lower, differences + r + stride, {{r + stride, -1}});
            term(shared, r + stride, {{r, 1}, {r + stride, 1}});
            done[r + stride] = true;
        } else {
            term(upper, r, {{r, 1}});
            term(lower, r + stride, {{r, 1}});
        }
    }
    std::vector<std::uint32_t> offsets;
    for (std::size_t y = 0; y < window.y.count; y += 2)
        for (std::size_t x = 0; x < window.x.count; ++x) offsets.push_back(taps.offsets[y * window.x.count + x]);
    return {std::move(offsets), {std::move(upper), std::move(lower), std::move(shared)}};
}

}  // namespace rbnn
