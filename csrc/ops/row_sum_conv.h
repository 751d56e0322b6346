// What convolutions of floats and bytes share: their output is made from partial sums.
#pragma once
#include <vector>

#include "base/aligned_memory.h"
#include "ops/convolution.h"
#include "ops/row_sums.h"

namespace rbnn {

// `Conv` is the argument of the kernels for one sum: FloatConv or Int8Conv.
template <class Conv>
class RowSumConvolution : public Convolution {
public:
    void run(const Workspace& work) const final {
        prepare(work);
        const auto all = [&](const auto& job) {
            over_blocks(
                kernels_, channels_, row_sums_.offsets.size(), chunk(), work.threads, work.call,
                [&](std::size_t block, std::size_t first, std::size_t last) { convolve(job, block, first, last); });
        };
        if (row_sums_.by_fours()) {
            FourRows<Conv> job{{}, geometry_.x.count, geometry_.positions()};
            for (std::size_t i = 0; i < kRowSums<Conv>; ++i) job.sums[i] = row_sum(work, i);
            all(job);
        } else {
            all(row_sum(work, 0));
        }
    }

protected:
    explicit RowSumConvolution(const ConvolutionParameters& p)
        : Convolution(p), kernels_(p.kernels), geometry_(p.geometry), channels_(p.finish.channels) {}

    virtual void prepare(const Workspace& work) const = 0;
    virtual Conv row_sum(const Workspace& work, std::size_t i) const = 0;
    virtual void convolve(const Conv& job, std::size_t block, std::size_t first, std::size_t last) const = 0;
    virtual void convolve(const FourRows<Conv>& job, std::size_t block, std::size_t first, std::size_t last) const = 0;
    // The number of positions that are computed with the weights of one block.
    virtual std::size_t chunk() const = 0;

    std::size_t kernel_taps() const { return geometry_.y.kernel * geometry_.x.kernel * in_.channels; }

    const Kernels& kernels_;
    Geometry geometry_;
    std::size_t channels_;
    RowSums row_sums_;
    std::vector<AlignedBytes> weights_;  // of each sum
};

}  // namespace rbnn
