// What convolutions of numbers (floats, bytes), not bits, have in common: their output is made of sums of parts.
#pragma once
#include <vector>

#include "parts.h"

namespace rbnn {

// `Conv` is what the kernels take for one sum: FloatConv or Int8Conv.
template <class Conv>
class NumberConvolution : public Operation {
public:
    void run(const Run& run) const final {
        prepare(run);
        const auto one = [&](std::size_t i) { return part(run, i); };
        const auto all = [&](const auto& job) {
            over_blocks(words_for(channels_), parts_.offsets.size(), chunk(), run.threads,
                        [&](std::size_t block, std::size_t first, std::size_t last) { convolve(job, block, first, last); });
        };
        const auto two = [&](std::size_t i) { return RowPairs<Conv>{one(i), one(i + 1), one(i + 2)}; };
        if (parts_.by_fours())
            all(FourRows<Conv>{{two(0), two(3), two(6)}, window_.x.count, window_.positions()});
        else
            all(one(0));
    }

protected:
    NumberConvolution(const Reader& reader, const Buffer& in)
        : in_(in),
          window_(read_window(reader, in_, false)),
          kernels_(reader.kernels),
          channels_(reader.out_channels()),
          finish_(reader, window_.y.count, window_.x.count, channels_) {}

    virtual void prepare(const Run& run) const = 0;
    virtual Conv part(const Run& run, std::size_t i) const = 0;
    virtual void convolve(const Conv& job, std::size_t block, std::size_t first, std::size_t last) const = 0;
    virtual void convolve(const FourRows<Conv>& job, std::size_t block, std::size_t first, std::size_t last) const = 0;
    // Positions after which the weights of a block have been used often enough.
    virtual std::size_t chunk() const = 0;

    std::size_t kernel_taps() const { return window_.y.kernel * window_.x.kernel * in_.channels; }

    const Buffer& in_;
    Window window_;
    const Kernels& kernels_;
    std::size_t channels_;
    FinishSpec finish_;
    Parts parts_;
    std::vector<AlignedBytes> weights_;  // of each part
};

}  // namespace rbnn
