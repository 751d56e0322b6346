// The gradient of the weight of a convolution of signs (sign_conv.h), summed image by image.
//
// The weight is split into slabs and the images into parts.  Each slab has its own sums for each part, so that threads
// share nothing.  The order of all sums depends only on the shape.
#pragma once
#include <cstddef>
#include <vector>

#include "training/lines.h"
#include "training/sign_conv.h"

namespace rbnn {

class WeightGradient {
public:
    // Adjacent groups of four pixels in one output row: `count` groups from `first` on, at place `at` of the block.
    struct Run {
        std::size_t row, first, count, at;
    };

    struct Block {
        std::vector<Run> runs;
        std::size_t groups = 0;
    };

    explicit WeightGradient(const SignConv& given);

    std::size_t slabs() const { return slabs_.size(); }
    std::size_t parts() const { return parts_; }
    // The images of a part end before the first image of the next part.
    std::size_t first_image(std::size_t part) const { return conv.images * part / parts_; }

    // Adds one image of a part.  Threads must not share a slab and a part.
    void add(std::size_t slab, std::size_t part, const float* grad, const Word* planes);
    // Adds all images, with the threads of the convolution.
    void add_images(const float* grad, const Word* planes);
    // The gradient in the order of SignFilters::positive.
    void write(float* grad_weight) const;

private:
    struct Slab {
        std::size_t first_output, outputs, first_input, inputs;
    };

    void add_up(std::size_t slab, std::size_t tap, float* grad_weight) const;

    const SignConv& conv;
    std::vector<Block> blocks_;
    std::vector<Word> inside_;             // for each column modulo the stride, the columns inside the image
    std::vector<Slab> slabs_;
    std::size_t parts_ = 1;
    std::vector<std::vector<Line>> sums_;  // (slabs, parts), each (taps, inputs + 1, outputs)
};

}  // namespace rbnn
