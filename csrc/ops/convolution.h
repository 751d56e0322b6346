// What all convolutions have in common, of bits and of numbers.
#pragma once
#include <algorithm>

#include "ops/finish.h"
#include "ops/geometry.h"
#include "ops/operation.h"

namespace rbnn {

// What a convolution is made from, besides its weights: (channels of the output, rows and columns of the kernel, channels of the
// input).
struct ConvolutionParameters {
    const Kernels& kernels;
    const Buffer& in;
    Geometry geometry;
    FinishParameters finish;
    Kept& kept;
};

// Calls body(block, first, last) for the positions of each block of output channels, about `chunk` at a time.
template <class Body>
void over_blocks(const Kernels& kernels, std::size_t channels, std::size_t positions, std::size_t chunk, int threads,
                 Call& call, const Body& body) {
    const std::size_t tile = kernels.tile_positions;
    chunk = std::clamp(chunk / tile * tile, tile, std::max(positions, tile));
    const std::size_t chunks = (positions + chunk - 1) / chunk;
    calculate(words_for(channels) * chunks, 1, threads, call, [&](std::size_t begin, std::size_t end) {
        // Small convolutions are one piece: then the next operation asks.
        for (std::size_t i = begin; i < end && !(i == begin ? call.stopped() : call.stop()); ++i)
            body(i / chunks, i % chunks * chunk, std::min((i % chunks + 1) * chunk, positions));
    });
}

class Convolution : public Operation {
protected:
    explicit Convolution(const ConvolutionParameters& p) : in_(p.in), finish_(p.finish) {
        // Each value of a residual is read once, right before the sum of which it is a part is written.
        over_residual = finish_.residual && finish_.out && finish_.residual != &in_;
    }

    const Buffer& in_;
    FinishParameters finish_;
};

}  // namespace rbnn
