// Float convolution (and linear: a 1×1 kernel on one pixel), grouped and depthwise included.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "number_conv.h"

namespace rbnn {
namespace {

class FloatConvolution final : public NumberConvolution<FloatConv> {
public:
    explicit FloatConvolution(const Reader& reader)
        : NumberConvolution(reader, reader.input("x")),
          groups_(reader.whole("groups", 1, 1, kLargestChannels, {1})[0]) {
        reader.require(in_.channels % groups_ == 0 && channels_ % groups_ == 0, "groups do not divide the channels");
        const std::size_t each = in_.channels / groups_;
        const std::vector<std::size_t> shape{channels_, window_.y.kernel, window_.x.kernel, each};
        const bool by_fours = groups_ == 1 && fours_pay(window_, in_.channels, channels_);
        parts_ = by_fours ? lay_out_differences(window_, row(), in_.channels) : lay_out_sum(window_, row(), in_.channels, each, 1);
        // Whole numbers from −128 to 127 take a quarter of the file; here they are floats like any other.
        if (reader.spec.tensors.at("weight").type == Tensor::Type::int8)
            read_weights(reader, static_cast<const std::int8_t*>(reader.tensor("weight", Tensor::Type::int8, shape).data));
        else
            read_weights(reader, static_cast<const float*>(reader.tensor("weight", Tensor::Type::float32, shape).data));
        if (copied()) scratch_bytes = (by_fours ? difference_rows(window_) : window_.y.padded()) * row() * sizeof(float);
    }

private:
    void prepare(const Run& run) const override {
        if (!copied()) return;
        const std::size_t unpadded = in_.width * in_.channels;
        copy_padded(window_, in_.channels * sizeof(float), reinterpret_cast<std::uint8_t*>(copy(run)), run.threads,
                    [&, in = run.floats(in_)](std::size_t y, std::uint8_t* to) {
                        std::memcpy(to, in + y * unpadded, unpadded * sizeof(float));
                    });
        if (parts_.by_fours()) make_differences(window_, row(), copy(run), run.threads);
    }

    FloatConv part(const Run& run, std::size_t i) const override {
        const Part& part = parts_.all[i];
        return {copied() ? copy(run) : run.floats(in_), parts_.offsets.data(), part.segments.data(), part.segments.size(),
                part.taps(), reinterpret_cast<const float*>(weights_[i].data()), weight_stride_, finish_.at(run)};
    }
    void convolve(const FloatConv& job, std::size_t block, std::size_t first, std::size_t last) const override {
        if (groups_ == 1)
            kernels_.float_conv(job, block, first, last);
        else
            grouped(job, block, first, last);
    }
    void convolve(const FourRows<FloatConv>& job, std::size_t block, std::size_t first, std::size_t last) const override {
        kernels_.float_four_rows(job, block, first, last);
    }
    std::size_t chunk() const override { return (std::size_t{1} << 19) / (parts_.taps() * kBlock); }

    std::size_t row() const { return window_.x.padded() * in_.channels; }
    bool copied() const { return parts_.by_fours() || window_.y.padding != 0 || window_.x.padding != 0; }
    float* copy(const Run& run) const { return reinterpret_cast<float*>(run.arena + scratch_offset); }

    // Of each part: blocks × taps × 64 channels
    template <class Number>
    void read_weights(const Reader& reader, const Number* from) {
        const std::size_t blocks = words_for(channels_), kernel = kernel_taps() / groups_;
        reader.keep_weights(channels_, kernel, sizeof(float));
        // Ten classes need not read sixty-four.
        if (groups_ == 1 && channels_ <= kernels_.float_channels) weight_stride_ = kernels_.float_channels;
        for (const Part& part : parts_.all) {
            weights_.emplace_back(blocks * part.taps() * weight_stride_ * sizeof(float));
            auto* to = reinterpret_cast<float*>(weights_.back().data());
            for (std::size_t block = 0; block < blocks; ++block)
                for (std::size_t tap = 0; tap < part.taps(); ++tap)
                    for (std::size_t c = block * kBlock; c < block * kBlock + weight_stride_; ++c, ++to) {
                        *to = c < channels_ ? static_cast<float>(part.weight(from + c * kernel, tap)) : 0.0f;
                        reader.require(std::isfinite(*to), "the weight is not finite");
                    }
        }
    }

    void grouped(const FloatConv& job, std::size_t block, std::size_t first, std::size_t last) const {
        const std::size_t each = in_.channels / groups_, outputs = channels_ / groups_, begin = block * kBlock;
        const std::size_t count = std::min(kBlock, channels_ - begin);
        for (std::size_t pixel = first; pixel < last; ++pixel) {
            float sums[kBlock] = {};
            const float* in = job.input + job.pixel_offset[pixel];
            const float* w = job.weights + block * job.taps * kBlock;
            for (const Segment& segment : parts_.all[0].segments) {
                if (each == 1 && outputs == 1) {  // depthwise: output channel c reads input channel c
                    kernels_.multiply_add_into(sums, in + segment.offset + begin, w, count);
                    w += kBlock;
                    continue;
                }
                for (std::size_t k = 0; k < each; ++k, w += kBlock)
                    for (std::size_t c = 0; c < count; ++c)
                        sums[c] += in[segment.offset + (begin + c) / outputs * each + k] * w[c];
            }
            kernels_.finish(job.finish, sums, block, pixel, pixel + 1);
        }
    }

    std::size_t groups_, weight_stride_ = kBlock;
};

}  // namespace

Made make_float_conv(const Reader& reader) { return std::make_unique<FloatConvolution>(reader); }

}  // namespace rbnn
