// What convolutions of numbers (floats, bytes), not bits, have in common: their output is made of sums of parts.
#pragma once
#include <vector>

#include "convolution.h"
#include "parts.h"

namespace rbnn {

// `Conv` is what the kernels take for one sum: FloatConv or Int8Conv.
template <class Conv>
class NumberConvolution : public Convolution {
public:
    void run(const Run& run) const final {
        prepare(run);
        const auto all = [&](const auto& job) {
            over_blocks(parts_.offsets.size(), chunk(), run.threads,
                        [&](std::size_t block, std::size_t first, std::size_t last) { convolve(job, block, first, last); });
        };
        if (parts_.by_fours()) {
            FourRows<Conv> job{{}, window_.x.count, window_.positions()};
            for (std::size_t i = 0; i < kPartsOf<Conv>; ++i) job.sums[i] = part(run, i);
            all(job);
        } else {
            all(part(run, 0));
        }
    }

protected:
    using Convolution::Convolution;

    virtual void prepare(const Run& run) const = 0;
    virtual Conv part(const Run& run, std::size_t i) const = 0;
    virtual void convolve(const Conv& job, std::size_t block, std::size_t first, std::size_t last) const = 0;
    virtual void convolve(const FourRows<Conv>& job, std::size_t block, std::size_t first, std::size_t last) const = 0;
    // Positions after which the weights of a block have been used often enough.
    virtual std::size_t chunk() const = 0;

    std::size_t kernel_taps() const { return window_.y.kernel * window_.x.kernel * in_.channels; }

    Parts parts_;
    std::vector<AlignedBytes> weights_;  // of each part
};

}  // namespace rbnn
