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
          channels_(out_channels(reader)),
          finish_(reader, window_.y.count, window_.x.count, channels_) {
        reader.require(in_.channels % groups_ == 0 && channels_ % groups_ == 0, "groups do not divide the channels");
        const std::size_t each = in_.channels / groups_;
        taps_ = window_.y.kernel * window_.x.kernel * each;
        const Tensor& weight = reader.tensor("weight", Tensor::Type::float32,
                                             {channels_, window_.y.kernel, window_.x.kernel, each});
        read_weights(reader, static_cast<const float*>(weight.data));
        lay_out();
    }

    void run(const Run& run) const override {
        const float* in = run.floats(in_);
        if (padded()) {
            auto* copy = reinterpret_cast<float*>(run.arena + scratch_offset);
            copy_padded(in, copy, run.threads);
            in = copy;
        }
        const FloatConv job{in,    offsets_.data(), segments_.data(), segments_.size(),
                            taps_, reinterpret_cast<const float*>(weights_.data()), finish_.at(run)};
        const std::size_t pixels = window_.positions(), blocks = words_for(channels_);
        const std::size_t chunk = std::clamp<std::size_t>((std::size_t{1} << 19) / (taps_ * kBlock) / 6 * 6, 6, pixels);
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
    static std::size_t out_channels(const Reader& reader) {
        const auto found = reader.spec.tensors.find("weight");
        reader.require(found != reader.spec.tensors.end() && found->second.shape.size() == 4, "has no weight");
        const std::size_t channels = found->second.shape[0];
        reader.require(channels > 0 && channels <= kLargestChannels, "has too many output channels");
        return channels;
    }

    bool padded() const { return window_.y.padding != 0 || window_.x.padding != 0; }

    // blocks × taps × 64 channels
    void read_weights(const Reader& reader, const float* from) {
        const std::size_t blocks = words_for(channels_);
        reader.require(blocks * taps_ * kBlock <= (std::size_t{1} << 30), "the weight is too large");
        weights_ = AlignedBytes(blocks * taps_ * kBlock * sizeof(float));
        auto* to = reinterpret_cast<float*>(weights_.data());
        for (std::size_t block = 0; block < blocks; ++block)
            for (std::size_t tap = 0; tap < taps_; ++tap)
                for (std::size_t c = block * kBlock; c < (block + 1) * kBlock; ++c) {
                    const float value = c < channels_ ? from[c * taps_ + tap] : 0.0f;
                    reader.require(std::isfinite(value), "the weight is not finite");
                    *to++ = value;
                }
    }

    void lay_out() {
        const std::size_t each = in_.channels / groups_, row = window_.x.padded() * in_.channels;
        for (std::size_t y = 0; y < window_.y.count; ++y)
            for (std::size_t x = 0; x < window_.x.count; ++x)
                offsets_.push_back(
                    static_cast<std::uint32_t>(window_.y.start(y) * row + window_.x.start(x) * in_.channels));
        for (std::size_t ky = 0; ky < window_.y.kernel; ++ky) {
            const std::size_t from = ky * window_.y.dilation * row;
            if (window_.x.dilation == 1 && groups_ == 1)
                add_segment(from, window_.x.kernel * in_.channels);
            else
                for (std::size_t kx = 0; kx < window_.x.kernel; ++kx)
                    add_segment(from + kx * window_.x.dilation * in_.channels, each);
        }
        if (padded()) scratch_bytes = window_.y.padded() * row * sizeof(float);
    }

    void add_segment(std::size_t offset, std::size_t length) {
        segments_.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(length)});
    }

    void copy_padded(const float* in, float* out, int threads) const {
        const std::size_t row = window_.x.padded() * in_.channels, margin = window_.x.padding * in_.channels;
        parallel_for(window_.y.padded(), 16, threads, [&](std::size_t begin, std::size_t end) {
            for (std::size_t y = begin; y < end; ++y) {
                float* to = out + y * row;
                if (y < window_.y.padding || y >= window_.y.padding + in_.height) {
                    std::fill(to, to + row, 0.0f);
                    continue;
                }
                std::fill(to, to + margin, 0.0f);
                std::memcpy(to + margin, in + (y - window_.y.padding) * in_.width * in_.channels,
                            in_.width * in_.channels * sizeof(float));
                std::fill(to + row - margin, to + row, 0.0f);
            }
        });
    }

    void grouped(const FloatConv& job, std::size_t block, std::size_t first, std::size_t last) const {
        const std::size_t each = in_.channels / groups_, outputs = channels_ / groups_, begin = block * kBlock;
        const std::size_t count = std::min(kBlock, channels_ - begin);
        for (std::size_t pixel = first; pixel < last; ++pixel) {
            float sums[kBlock] = {};
            const float* in = job.input + job.pixel_offset[pixel];
            const float* w = job.weights + block * taps_ * kBlock;
            for (const Segment& segment : segments_) {
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
    std::size_t taps_ = 0;
    AlignedBytes weights_;
    std::vector<std::uint32_t> offsets_;
    std::vector<Segment> segments_;
};

}  // namespace

Made make_float_conv(const Reader& reader) { return std::make_unique<FloatConvolution>(reader); }

}  // namespace rbnn
