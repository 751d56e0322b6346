// grad_weight: the lanes are output channels.
//
// Four pixels of an output row are a group, and up to eight groups are a block.  The table of a group has the sum over
// each of the 16 subsets of its pixels, for a slab of output channels.  The index is the bits of a channel that a tap
// sees at the pixels of the group.  Padding has bit 0 and adds nothing, so with a = 2·bit − 1 inside the image
//
//   grad_w = 2 Σ_{bit} grad − Σ_{inside} grad
//
// and the last sum is that of an additional channel, whose bits are 1 inside the image.
#include <algorithm>
#include <cstring>

#include "base/threads.h"
#include "training/weight_gradient.h"

namespace rbnn {
namespace {

constexpr std::size_t kBlockGroups = 8;
constexpr std::size_t kSlabInputs = 64, kSlabOutputs = 32;
constexpr std::size_t kTasks = 16;  // about this many if there are enough images, at least one for each slab

using Run = WeightGradient::Run;
using Block = WeightGradient::Block;

std::vector<Block> make_blocks(const SignConv& conv) {
    const std::size_t per_row = (conv.out_width() + kGroup - 1) / kGroup;
    std::vector<Block> blocks(1);
    for (std::size_t row = 0; row < conv.out_height(); ++row)
        for (std::size_t first = 0; first < per_row;) {
            if (blocks.back().groups == kBlockGroups) blocks.emplace_back();
            Block& block = blocks.back();
            const std::size_t count = std::min(per_row - first, kBlockGroups - block.groups);
            block.runs.push_back({row, first, count, block.groups});
            block.groups += count, first += count;
        }
    return blocks;
}

// index[c] has the bits of channel c that this tap sees at the pixels of the block.  The last entry is for the
// additional channel.
void make_index(const SignConv& conv, const Block& block, const Word* planes, const Word* inside, std::size_t ky,
                std::size_t kx, std::size_t first, std::size_t count, std::uint32_t* index) {
    std::memset(index, 0, (count + 1) * sizeof *index);
    const std::size_t column = kx % conv.stride_x;
    for (const Run& run : block.runs) {
        const std::size_t y = run.row * conv.stride_y + ky;
        if (y < conv.padding_y || y >= conv.padding_y + conv.height) continue;
        const Word* row = planes + ((y - conv.padding_y) * conv.stride_x + column) * conv.in_channels + first;
        const std::size_t shift = kx / conv.stride_x + run.first * kGroup, at = run.at * kGroup;
        const Word mask = ~Word{0} >> (64 - run.count * kGroup);
        conv.kernels.training.add_to_index(row, count, shift, mask, at, index);
        conv.kernels.training.add_to_index(inside + column, 1, shift, mask, at, index + count);
    }
}

std::vector<Word> columns_inside(const SignConv& conv) {
    std::vector<Word> inside(conv.stride_x, 0);
    for (std::size_t x = conv.padding_x; x < conv.padding_x + conv.width; ++x)
        inside[x % conv.stride_x] |= Word{1} << (x / conv.stride_x);
    return inside;
}

}  // namespace

WeightGradient::WeightGradient(const SignConv& given)
    : conv(given), blocks_(make_blocks(given)), inside_(columns_inside(given)) {
    for (std::size_t o = 0, outputs; o < conv.out_channels; o += outputs) {
        const std::size_t rest = conv.out_channels - o;
        outputs = rest >= kSlabOutputs ? kSlabOutputs : (rest >= 16 ? 16 : 8);
        for (std::size_t c = 0; c < conv.in_channels; c += kSlabInputs)
            slabs_.push_back({o, outputs, c, std::min(kSlabInputs, conv.in_channels - c)});
    }
    parts_ = std::clamp<std::size_t>(kTasks / slabs_.size(), 1, std::max<std::size_t>(conv.images, 1));
    sums_.resize(slabs_.size() * parts_);
}

void WeightGradient::add(std::size_t slab_number, std::size_t part, const float* grad, const Word* planes) {
    const Slab& slab = slabs_[slab_number];
    std::vector<Line>& own = sums_[slab_number * parts_ + part];
    if (own.empty()) own = lines_for(conv.taps() * (slab.inputs + 1) * slab.outputs);
    alignas(64) float table[kBlockGroups * kSums * kSlabOutputs];
    std::uint32_t index[kSlabInputs + 1];
    for (const Block& block : blocks_) {
        for (const Run& run : block.runs)
            conv.kernels.training.table_subsets(
                grad + slab.first_output + run.row * conv.out_width() * conv.out_channels, run.first * kGroup,
                conv.out_width(), conv.out_channels, run.count, slab.outputs, table + run.at * kSums * slab.outputs);
        float* sums = own.data()->values;
        for (std::size_t ky = 0; ky < conv.kernel_y; ++ky)
            for (std::size_t kx = 0; kx < conv.kernel_x; ++kx, sums += (slab.inputs + 1) * slab.outputs) {
                make_index(conv, block, planes, inside_.data(), ky, kx, slab.first_input, slab.inputs, index);
                conv.kernels.training.look_up_subsets(slab.outputs, block.groups, table, index, slab.inputs + 1, sums);
            }
    }
}

void WeightGradient::add_up(std::size_t slab_number, std::size_t tap, float* grad_weight) const {
    const Slab& slab = slabs_[slab_number];
    double all[kSlabOutputs], some[kSlabOutputs];
    const auto total = [&](std::size_t c, double* out) {
        std::fill(out, out + slab.outputs, 0.0);
        for (std::size_t part = 0; part < parts_; ++part)
            if (const std::vector<Line>& own = sums_[slab_number * parts_ + part]; !own.empty())
                conv.kernels.add_into(out, own.data()->values + (tap * (slab.inputs + 1) + c) * slab.outputs,
                                      slab.outputs);
    };
    total(slab.inputs, all);
    for (std::size_t c = 0; c < slab.inputs; ++c) {
        total(c, some);
        float* out = grad_weight + (slab.first_output * conv.taps() + tap) * conv.in_channels + slab.first_input + c;
        for (std::size_t o = 0; o < slab.outputs; ++o)
            out[o * conv.taps() * conv.in_channels] = static_cast<float>(2.0 * some[o] - all[o]);
    }
}

void WeightGradient::add_images(const float* grad, const Word* planes) {
    parallel_for(slabs_.size() * parts_, 1, conv.threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t task = begin; task < end; ++task)
            for (std::size_t image = first_image(task % parts_); image < first_image(task % parts_ + 1); ++image)
                add(task / parts_, task % parts_, grad + image * conv.out_values(),
                    planes + image * conv.plane_words());
    });
}

void WeightGradient::write(float* grad_weight) const {
    const std::size_t taps = conv.taps();
    parallel_for(slabs_.size() * taps, 1, conv.threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t job = begin; job < end; ++job) add_up(job / taps, job % taps, grad_weight);
    });
}

void sign_conv_grad_weight(const SignConv& conv, const float* grad, const std::uint64_t* planes, float* grad_weight) {
    WeightGradient gradient(conv);
    gradient.add_images(grad, planes);
    gradient.write(grad_weight);
}

}  // namespace rbnn
