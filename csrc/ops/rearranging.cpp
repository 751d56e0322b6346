// Operations that move values without changing them.
#include <algorithm>
#include <cstring>

#include "ops/operations.h"
#include "ops/small_operation.h"

namespace rbnn {
namespace {

void copy(const Workspace& work, const float* from, std::size_t count, float* to) {
    in_pieces(work, count, 1, [&](std::size_t begin, std::size_t end) {
        std::memcpy(to + begin, from + begin, (end - begin) * sizeof(float));
    });
}

}  // namespace

Made make_concat(const std::vector<const Buffer*>& parts, const Buffer& out, Along axis) {
    // Each part consists of this many contiguous runs.
    const std::size_t runs = axis == Along::height ? 1 : axis == Along::width ? out.height : out.pixels();
    std::vector<std::size_t> lengths;
    for (const Buffer* part : parts) lengths.push_back(part->values() / runs);
    return small([parts, &out, runs, lengths](const Workspace& work) {
        const std::size_t together = out.values() / runs;
        in_pieces(work, runs, together, [&](std::size_t begin, std::size_t end) {
            float* to = work.floats(out) + begin * together;
            for (std::size_t run = begin; run < end; ++run)
                for (std::size_t part = 0; part < parts.size(); to += lengths[part++]) {
                    const float* from = work.floats(*parts[part]) + run * lengths[part];
                    if (lengths[part] > Call::kPiece)
                        copy(work, from, lengths[part], to);
                    else
                        std::memcpy(to, from, lengths[part] * sizeof(float));
                }
        });
    });
}

Made make_permute(const Buffer& in, const Buffer& out, const std::vector<std::size_t>& sides,
                  const std::vector<std::size_t>& order) {
    std::vector<std::size_t> strides(sides.size(), 1), counts, steps;  // counts and steps are of the output's axes
    for (std::size_t i = sides.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * sides[i];
    for (const std::size_t axis : order) counts.push_back(sides[axis]), steps.push_back(strides[axis]);
    const std::size_t length = counts.back(), step = steps.back();
    return small([&in, &out, counts, steps, length, step](const Workspace& work) {
        const std::size_t axes = counts.size() - 1;
        calculate(out.values() / length, std::max<std::size_t>(kGrain / length, 1), work.threads, work.call,
                  [&](std::size_t begin, std::size_t end) {
                      std::size_t at[kMostSides] = {}, place = 0;
                      for (std::size_t axis = axes, rest = begin; axis-- > 0; rest /= counts[axis])
                          at[axis] = rest % counts[axis], place += at[axis] * steps[axis];
                      const float* from = work.floats(in);
                      float* to = work.floats(out) + begin * length;
                      for (std::size_t run = begin; run < end && !work.call.stop(length); ++run, to += length) {
                          if (step == 1)
                              std::memcpy(to, from + place, length * sizeof(float));
                          else
                              for (std::size_t i = 0; i < length; ++i) to[i] = from[place + i * step];
                          for (std::size_t axis = axes; axis-- > 0;) {
                              place += steps[axis];
                              if (++at[axis] < counts[axis]) break;
                              place -= counts[axis] * steps[axis], at[axis] = 0;
                          }
                      }
                  });
    });
}

Made make_reshape(const Kernels& kernels, const Buffer& in, const Buffer& out, bool by_channels) {
    // If both buffers have one pixel or one channel, the two orders are the same.
    const auto plain = [](const Buffer& b) { return b.pixels() == 1 || b.channels == 1; };
    if (!by_channels || (plain(in) && plain(out)))
        return small([&in, &out](const Workspace& work) {
            copy(work, work.floats(in), in.values(), work.floats(out));
        });
    if (plain(in) || plain(out)) {
        const Buffer& image = plain(out) ? in : out;
        const std::size_t rows = plain(out) ? image.pixels() : image.channels, columns = image.values() / rows;
        return small([&kernels, &in, &out, rows, columns](const Workspace& work) {
            kernels.transpose(work.floats(in), rows, columns, work.floats(out));
        });
    }
    return small([&in, &out](const Workspace& work) {
        // The place of value i, in torch's order, in both buffers.
        const float* from = work.floats(in);
        float* to = work.floats(out);
        std::size_t pixel = 0, channel = 0;
        for (std::size_t c = 0; c < in.channels && !work.call.stop(in.pixels()); ++c)
            for (std::size_t p = 0; p < in.pixels(); ++p) {
                to[pixel * out.channels + channel] = from[p * in.channels + c];
                if (++pixel == out.pixels()) pixel = 0, ++channel;
            }
    });
}

Made make_slice(const Buffer& in, const Buffer& out, const std::vector<std::size_t>& start,
                const std::vector<std::size_t>& step) {
    return small([&in, &out, start, step](const Workspace& work) {
        const std::size_t row = out.width * out.channels;
        in_pieces(work, out.height, row, [&](std::size_t begin, std::size_t end) {
            float* to = work.floats(out) + begin * row;
            for (std::size_t y = begin; y < end; ++y)
                for (std::size_t x = 0; x < out.width; ++x, to += out.channels) {
                    const float* from =
                        work.floats(in) + ((start[0] + y * step[0]) * in.width + start[1] + x * step[1]) * in.channels;
                    for (std::size_t c = 0; c < out.channels; ++c) to[c] = from[start[2] + c * step[2]];
                }
        });
    });
}

Made make_select(const Buffer& in, const Buffer& out, Along axis, const std::vector<std::size_t>& places) {
    if (axis == Along::channels)
        return small([&in, &out, places](const Workspace& work) {
            over_rows(work, out.pixels(), out.channels, [&](std::size_t pixel) {
                const float* from = work.floats(in) + pixel * in.channels;
                float* to = work.floats(out) + pixel * out.channels;
                for (std::size_t c = 0; c < out.channels; ++c) to[c] = from[places[c]];
            });
        });
    // Each place has this many contiguous values: those of a row or of a pixel.
    const std::size_t length = axis == Along::height ? in.width * in.channels : in.channels;
    const std::size_t side = axis == Along::height ? in.height : in.width;
    return small([&in, &out, places, length, side](const Workspace& work) {
        over_rows(work, out.values() / length, length, [&](std::size_t run) {
            const std::size_t place = run / places.size() * side + places[run % places.size()];
            std::memcpy(work.floats(out) + run * length, work.floats(in) + place * length, length * sizeof(float));
        });
    });
}

Made make_pad(const Buffer& in, const Buffer& out, const std::vector<std::size_t>& before, float value) {
    return small([&in, &out, before, value](const Workspace& work) {
        float* to = work.floats(out);
        in_pieces(work, out.values(), 1,
                  [&](std::size_t begin, std::size_t end) { std::fill(to + begin, to + end, value); });
        in_pieces(work, in.height, in.width * in.channels, [&](std::size_t begin, std::size_t end) {
            for (std::size_t y = begin; y < end; ++y)
                for (std::size_t x = 0; x < in.width; ++x)
                    std::memcpy(to + ((y + before[0]) * out.width + x + before[1]) * out.channels + before[2],
                                work.floats(in) + (y * in.width + x) * in.channels, in.channels * sizeof(float));
        });
    });
}

Made make_mirrored_pad(const Buffer& in, const Buffer& out, const std::vector<std::size_t>& before, Mirror mirror,
                       Kept& kept) {
    kept.borders(out.height + out.width, 1);
    // The row or column of the image that each row or column of the output is copied from.
    const auto sources = [mirror](std::size_t side, std::size_t count, std::size_t margin) {
        std::vector<std::size_t> found;
        for (std::size_t i = 0; i < count; ++i) {
            if (i >= margin && i < margin + side)
                found.push_back(i - margin);
            else if (mirror == Mirror::replicate)
                found.push_back(i < margin ? 0 : side - 1);
            else if (mirror == Mirror::reflect)
                found.push_back(i < margin ? margin - i : 2 * (side - 1) - (i - margin));
            else
                found.push_back(i < margin ? side - (margin - i) : i - margin - side);
        }
        return found;
    };
    const auto rows = sources(in.height, out.height, before[0]), columns = sources(in.width, out.width, before[1]);
    return small([&in, &out, rows, columns](const Workspace& work) {
        over_rows(work, out.height, out.width * out.channels, [&](std::size_t y) {
            const float* from = work.floats(in) + rows[y] * in.width * in.channels;
            float* to = work.floats(out) + y * out.width * out.channels;
            for (std::size_t x = 0; x < out.width; ++x, to += out.channels)
                std::memcpy(to, from + columns[x] * in.channels, in.channels * sizeof(float));
        });
    });
}

Made make_constant(const Buffer& out, const float* data) {
    return small([&out, values = std::vector<float>(data, data + out.values())](const Workspace& work) {
        copy(work, values.data(), values.size(), work.floats(out));
    });
}

}  // namespace rbnn
