// Float convolution (and linear: a 1×1 kernel on one pixel), grouped and depthwise included.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "operation.h"
#include "threads.h"
#include "window.h"

namespace rbnn {
namespace {

class FloatConvolution final : public Operation {
public:
    explicit FloatConvolution(const Reader& reader)
        : in_(reader.input("x")),
          window_(read_window(reader, in_, false)),
          kernels_(reader.kernels),
          groups_(reader.whole("groups", 1, 1, kLargestChannels, {1})[0]),
          channels_(reader.out_channels()),
          finish_(reader, window_.y.count, window_.x.count, channels_) {
        reader.require(in_.channels % groups_ == 0 && channels_ % groups_ == 0, "groups do not divide the channels");
        const std::size_t each = in_.channels / groups_;
        tap_count_ = window_.y.kernel * window_.x.kernel * each;
        const std::vector<std::size_t> shape{channels_, window_.y.kernel, window_.x.kernel, each};
        // Whole numbers from −128 to 127 take a quarter of the file; here they are floats like any other.
        if (reader.spec.tensors.at("weight").type == Tensor::Type::int8)
            read_weights(reader, static_cast<const std::int8_t*>(reader.tensor("weight", Tensor::Type::int8, shape).data));
        else
            read_weights(reader, static_cast<const float*>(reader.tensor("weight", Tensor::Type::float32, shape).data));
        taps_ = lay_out(window_, window_.x.padded() * in_.channels, in_.channels, each);
        if (padded()) scratch_bytes = window_.y.padded() * window_.x.padded() * in_.channels * sizeof(float);
    }

    void run(const Run& run) const override {
        const float* in = run.floats(in_);
        if (padded()) {
            auto* copy = reinterpret_cast<std::uint8_t*>(run.arena + scratch_offset);
            const std::size_t row = in_.width * in_.channels;
            copy_padded(window_, in_.channels * sizeof(float), copy, run.threads,
                        [&](std::size_t y, std::uint8_t* to) { std::memcpy(to, in + y * row, row * sizeof(float)); });
            in = reinterpret_cast<const float*>(copy);
        }
        const FloatConv job{in, taps_.offsets.data(), taps_.segments.data(), taps_.segments.size(), tap_count_,
                            reinterpret_cast<const float*>(weights_.data()), weight_stride_, finish_.at(run)};
        const std::size_t pixels = window_.positions(), blocks = words_for(channels_);
        const std::size_t chunk = std::clamp<std::size_t>((std::size_t{1} << 19) / (tap_count_ * kBlock) / 6 * 6, 6, pixels);
        const std::size_t chunks = (pixels + chunk - 1) / chunk;
        parallel_for(blocks * chunks, 1, run.threads, [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i) {
                const std::size_t first = i % chunks * chunk, last = std::min(first + chunk, pixels);
                if (groups_ == 1)
                    kernels_.float_conv(job, i / chunks, first, last);
                else
                    grouped(job, i / chunks, first, last);
            }
        });
    }

private:
    bool padded() const { return window_.y.padding != 0 || window_.x.padding != 0; }

    // blocks × taps × 64 channels
    template <class Number>
    void read_weights(const Reader& reader, const Number* from) {
        const std::size_t blocks = words_for(channels_);
        reader.require(blocks * tap_count_ * kBlock <= (std::size_t{1} << 30), "the weight is too large");
        // Ten classes need not read sixty-four.
        if (groups_ == 1 && channels_ <= kernels_.float_channels) weight_stride_ = kernels_.float_channels;
        weights_ = AlignedBytes(blocks * tap_count_ * weight_stride_ * sizeof(float));
        auto* to = reinterpret_cast<float*>(weights_.data());
        for (std::size_t block = 0; block < blocks; ++block)
            for (std::size_t tap = 0; tap < tap_count_; ++tap)
                for (std::size_t c = block * kBlock; c < block * kBlock + weight_stride_; ++c)
                    *to++ = c < channels_ ? static_cast<float>(from[c * tap_count_ + tap]) : 0.0f;
        to = reinterpret_cast<float*>(weights_.data());
        for (std::size_t i = 0; i < blocks * tap_count_ * weight_stride_; ++i)
            reader.require(std::isfinite(to[i]), "the weight is not finite");
    }

    void grouped(const FloatConv& job, std::size_t block, std::size_t first, std::size_t last) const {
        const std::size_t each = in_.channels / groups_, outputs = channels_ / groups_, begin = block * kBlock;
        const std::size_t count = std::min(kBlock, channels_ - begin);
        for (std::size_t pixel = first; pixel < last; ++pixel) {
            float sums[kBlock] = {};
            const float* in = job.input + job.pixel_offset[pixel];
            const float* w = job.weights + block * tap_count_ * kBlock;
            for (const Segment& segment : taps_.segments) {
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

    const Buffer& in_;
    Window window_;
    const Kernels& kernels_;
    std::size_t groups_, channels_;
    FinishSpec finish_;
    std::size_t tap_count_ = 0, weight_stride_ = kBlock;
    AlignedBytes weights_;
    Taps taps_;
};

}  // namespace

Made make_float_conv(const Reader& reader) { return std::make_unique<FloatConvolution>(reader); }

}  // namespace rbnn
