// grad_weight: lanes are output channels.
//
// Four pixels of an output row are a group, up to eight groups a block.  The table of a group has the sum over each of the 16
// subsets of its pixels, for a slab of output channels.  A tap sees the bits of a channel under the group's pixels: these
// are the index.  Padding has bit 0 and adds nothing, so with a = 2·bit − 1 inside the picture
//
//   grad_w = 2 Σ_{bit} grad − Σ_{inside} grad
//
// and the last sum is that of one more channel, whose bits are 1 wherever there is a picture.
#include <algorithm>
#include <cstring>

#include "training/sign_conv.h"
#include "base/threads.h"
#include "training/lines.h"

namespace rbnn {
namespace {

constexpr std::size_t kBlockGroups = 8;
constexpr std::size_t kSlabInputs = 64, kSlabOutputs = 32;
constexpr std::size_t kTasks = 16;  // at least so many where the images allow it, for as many threads

// Groups side by side in one output row: `count` from group `first`, at place `at` of the block.
struct Run {
    std::size_t row, first, count, at;
};

struct Block {
    std::vector<Run> runs;
    std::size_t groups = 0;
};

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

// A part of grad_weight and the images that it is summed over: sums are (taps, inputs + 1, outputs).
struct Task {
    std::size_t first_output, outputs, first_input, inputs, first_image, last_image;
    std::vector<Line> sums;

    float* values() { return sums.data()->values; }
    const float* values() const { return sums.data()->values; }
};

std::vector<Task> make_tasks(const SignConv& conv) {
    std::vector<Task> tasks;
    for (std::size_t o = 0, outputs; o < conv.out_channels; o += outputs) {
        const std::size_t rest = conv.out_channels - o;
        outputs = rest >= kSlabOutputs ? kSlabOutputs : (rest >= 16 ? 16 : 8);
        for (std::size_t c = 0; c < conv.in_channels; c += kSlabInputs)
            tasks.push_back({o, outputs, c, std::min(kSlabInputs, conv.in_channels - c), 0, conv.images, {}});
    }
    const std::size_t parts = std::clamp<std::size_t>(kTasks / tasks.size(), 1, std::max<std::size_t>(conv.images, 1));
    std::vector<Task> split;
    for (const Task& task : tasks)
        for (std::size_t part = 0; part < parts; ++part) {
            split.push_back(task);
            split.back().first_image = conv.images * part / parts;
            split.back().last_image = conv.images * (part + 1) / parts;
        }
    return split;
}

// index[c]: the bits of channel c under the block's pixels, as this tap sees them; then those of the picture itself.
void make_index(const SignConv& conv, const Block& block, const Word* planes, const Word* inside, std::size_t ky, std::size_t kx,
                std::size_t first, std::size_t count, std::uint32_t* index) {
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

void run_task(const SignConv& conv, const std::vector<Block>& blocks, const std::vector<Word>& inside, const float* grad,
              const Word* planes, Task& task) {
    task.sums = lines_for(conv.taps() * (task.inputs + 1) * task.outputs);
    std::vector<Line> lines = lines_for(kBlockGroups * kSums * task.outputs);
    float* table = lines.data()->values;
    std::uint32_t index[kSlabInputs + 1];
    for (std::size_t image = task.first_image; image < task.last_image; ++image)
        for (const Block& block : blocks) {
            const float* at = grad + image * conv.out_values() + task.first_output;
            for (const Run& run : block.runs)
                conv.kernels.training.table_subsets(at + run.row * conv.out_width() * conv.out_channels, run.first * kGroup,
                                                    conv.out_width(), conv.out_channels, run.count, task.outputs,
                                                    table + run.at * kSums * task.outputs);
            float* sums = task.values();
            for (std::size_t ky = 0; ky < conv.kernel_y; ++ky)
                for (std::size_t kx = 0; kx < conv.kernel_x; ++kx, sums += (task.inputs + 1) * task.outputs) {
                    make_index(conv, block, planes + image * conv.plane_words(), inside.data(), ky, kx, task.first_input,
                               task.inputs, index);
                    conv.kernels.training.look_up_subsets(task.outputs, block.groups, table, index, task.inputs + 1, sums);
                }
        }
}

// The gradient of a slab at one tap, from the sums of its tasks.
void add_up(const SignConv& conv, const Task* first, const Task* last, std::size_t tap, float* grad_weight) {
    double all[kSlabOutputs], some[kSlabOutputs];
    const auto total = [&](std::size_t c, double* out) {
        std::fill(out, out + first->outputs, 0.0);
        for (const Task* task = first; task < last; ++task)
            conv.kernels.add_into(out, task->values() + (tap * (first->inputs + 1) + c) * first->outputs, first->outputs);
    };
    total(first->inputs, all);
    for (std::size_t c = 0; c < first->inputs; ++c) {
        total(c, some);
        float* out = grad_weight + (first->first_output * conv.taps() + tap) * conv.in_channels + first->first_input + c;
        for (std::size_t o = 0; o < first->outputs; ++o)
            out[o * conv.taps() * conv.in_channels] = static_cast<float>(2.0 * some[o] - all[o]);
    }
}

}  // namespace

void sign_conv_grad_weight(const SignConv& conv, const float* grad, const std::uint64_t* planes, float* grad_weight) {
    const std::vector<Block> blocks = make_blocks(conv);
    std::vector<Word> inside(conv.stride_x, 0);
    for (std::size_t x = conv.padding_x; x < conv.padding_x + conv.width; ++x)
        inside[x % conv.stride_x] |= Word{1} << (x / conv.stride_x);
    std::vector<Task> tasks = make_tasks(conv);
    parallel_for(tasks.size(), 1, conv.threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) run_task(conv, blocks, inside, grad, planes, tasks[i]);
    });
    // Tasks of one slab follow each other; their sums are added in double.
    std::vector<std::size_t> slabs{0};
    for (std::size_t i = 1; i <= tasks.size(); ++i)
        if (i == tasks.size() || tasks[i].first_output != tasks[i - 1].first_output || tasks[i].first_input != tasks[i - 1].first_input)
            slabs.push_back(i);
    const std::size_t taps = conv.taps();
    parallel_for((slabs.size() - 1) * taps, 1, conv.threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t job = begin; job < end; ++job)
            add_up(conv, tasks.data() + slabs[job / taps], tasks.data() + slabs[job / taps + 1], job % taps, grad_weight);
    });
}

}  // namespace rbnn
