// What all convolutions have in common, of bits and of numbers.
#pragma once
#include <algorithm>

#include "ops/geometry.h"

namespace rbnn {

class Convolution : public Operation {
protected:
    Convolution(const Reader& reader, const Buffer& in)
        : in_(in),
          geometry_(read_geometry(reader, in_, false)),
          kernels_(reader.kernels),
          channels_(reader.out_channels()),
          finish_(reader, geometry_.y.count, geometry_.x.count, channels_) {
        // Each value of a residual is read once, right before the sum of which it is a part is written.
        over_residual = reader.has_input("residual") && reader.has_output("float") && &reader.input("residual") != &in_;
    }

    // Calls body(block, first, last) for the positions of each block of output channels, about `chunk` at a time.
    template <class Body>
    void over_blocks(std::size_t positions, std::size_t chunk, int threads, const Body& body) const {
        const std::size_t tile = kernels_.tile_positions;
        chunk = std::clamp(chunk / tile * tile, tile, std::max(positions, tile));
        const std::size_t chunks = (positions + chunk - 1) / chunk;
        parallel_for(words_for(channels_) * chunks, 1, threads, [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i)
                body(i / chunks, i % chunks * chunk, std::min((i % chunks + 1) * chunk, positions));
        });
    }

    const Buffer& in_;
    Geometry geometry_;
    const Kernels& kernels_;
    std::size_t channels_;
    FinishSpec finish_;
};

}  // namespace rbnn
