// The end of an operation (simd/kernels.h, Finish): its parameters, and the buffers that it reads and writes.
#pragma once
#include <limits>
#include <vector>

#include "ops/operation.h"

namespace rbnn {

struct ActivationParameters {
    Activation activation = Activation::clamp;
    float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
    std::vector<float> slope;
};

// Arrays with one number per channel are padded to whole blocks.
struct FinishParameters {
    std::size_t channels;
    std::vector<float> scale, shift, level;
    std::vector<std::int32_t> threshold;
    ActivationParameters activation;
    const Buffer *residual = nullptr, *out = nullptr, *bits = nullptr;

    // The pointers for one run.
    Finish at(const Workspace& work) const {
        return {channels,
                scale.data(),
                shift.data(),
                residual ? work.floats(*residual) : nullptr,
                activation.activation,
                activation.low,
                activation.high,
                activation.slope.data(),
                level.data(),
                threshold.empty() ? nullptr : threshold.data(),
                out ? work.floats(*out) : nullptr,
                bits ? work.words(*bits) : nullptr};
    }
};

}  // namespace rbnn
