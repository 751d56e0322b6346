// What all convolutions share, whether of bits or of numbers.
#pragma once
#include <algorithm>

#include "ops/finish.h"
#include "ops/geometry.h"
#include "ops/operation.h"

namespace rbnn {

// What a convolution is made from, besides its weights, whose shape is (output channels, kernel rows, kernel columns,
// input channels).
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
        // A small convolution is one part, after which the program checks for an interruption.
        for (std::size_t i = begin; i < end && !(i == begin ? call.stopped() : call.stop()); ++i)
            body(i / chunks, i % chunks * chunk, std::min((i % chunks + 1) * chunk, positions));
    });
}

class Convolution : public Operation {
protected:
    explicit Convolution(const ConvolutionParameters& p) : in_(p.in), finish_(p.finish) {
        // Each value of the residual is read once, immediately before the sum that contains it is written.
        over_residual = finish_.residual && finish_.out && finish_.residual != &in_;
    }

    const Buffer& in_;
    FinishParameters finish_;
};

}  // namespace rbnn
