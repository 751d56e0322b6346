// Convolution of bytes with int8 weights: the first layer of a network that is given pictures.
//
// A byte u stands for the value u − zero[c], and what lies outside the picture for 0, so with `inside` the taps in the picture
//
//   acc = Σ_inside w·(u − zero) = Σ_all w·u − Σ_inside w·zero          (margins are bytes 0)
//
// The first sum is made of whole numbers, exact; the second is `base`, one row of numbers per kind of border.
#include <algorithm>
#include <cstring>

#include "window.h"

namespace rbnn {
namespace {

constexpr std::size_t kMostTaps = 1 << 16;  // × 255 × 128 < 2³¹

class Int8Convolution final : public Operation {
public:
    explicit Int8Convolution(const Reader& reader)
        : in_(reader.input("x", Buffer::Type::bytes)),
          window_(read_window(reader, in_, false)),
          kernels_(reader.kernels),
          channels_(reader.out_channels()),
          finish_(reader, window_.y.count, window_.x.count, channels_) {
        const std::size_t taps = window_.y.kernel * window_.x.kernel * in_.channels;
        reader.require(taps <= kMostTaps, "has more taps than can be added up in whole numbers");
        const Tensor& tensor =
            reader.tensor("weight", Tensor::Type::int8, {channels_, window_.y.kernel, window_.x.kernel, in_.channels});
        const auto* weight = static_cast<const std::int8_t*>(tensor.data);
        const std::size_t pixel = in_.channels * kernels_.int8_bytes, total = window_.y.padded() * window_.x.padded() * pixel;
        reader.require(total < (std::size_t{1} << 31), "the input is too large");
        taps_ = lay_out(window_, window_.x.padded() * pixel, pixel, pixel);
        tile(reader, weight);
        make_base(reader, weight);
        scratch_bytes = total + step_bytes();  // the last step may reach over the end
    }

    void run(const Run& run) const override {
        auto* operand = reinterpret_cast<std::uint8_t*>(run.arena + scratch_offset);
        const std::size_t row = in_.width * in_.channels;
        copy_padded(window_, in_.channels * kernels_.int8_bytes, operand, run.threads,
                    [&](std::size_t y, std::uint8_t* to) { kernels_.widen_bytes(run.bytes(in_) + y * row, row, to); });
        std::memset(operand + scratch_bytes - step_bytes(), 0, step_bytes());
        const Int8Conv job{operand, taps_.offsets.data(), borders_.of_pixel.data(), taps_.segments.data(),
                           taps_.segments.size(), weights_.data(), block_bytes_, base_.data(), finish_.at(run)};
        const std::size_t pixels = window_.positions(), blocks = words_for(channels_);
        const std::size_t chunk = std::clamp<std::size_t>((std::size_t{1} << 21) / block_bytes_ / 6 * 6, 6, pixels);
        const std::size_t chunks = (pixels + chunk - 1) / chunk;
        parallel_for(blocks * chunks, 1, run.threads, [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i) {
                const std::size_t first = i % chunks * chunk;
                kernels_.int8_conv(job, i / chunks, first, std::min(first + chunk, pixels));
            }
        });
    }

private:
    std::size_t step_bytes() const { return kernels_.int8_bytes * kernels_.int8_values; }

    // blocks × steps × 64 channels × the values of a step, each as wide as in the operand.  Segments are filled up to
    // whole steps: what they read too much of meets weights of 0.
    void tile(const Reader& reader, const std::int8_t* weight) {
        const std::size_t each = kernels_.int8_values, blocks = words_for(channels_);
        const std::size_t length = taps_.segments[0].length / kernels_.int8_bytes, steps = (length + each - 1) / each;
        block_bytes_ = taps_.segments.size() * steps * kBlock * step_bytes();
        reader.require(blocks * block_bytes_ <= (std::size_t{1} << 32), "the weight is too large");
        weights_ = AlignedBytes(blocks * block_bytes_);
        std::uint8_t* to = weights_.data();
        for (std::size_t block = 0; block < blocks; ++block)
            for (std::size_t s = 0; s < taps_.segments.size(); ++s)
                for (std::size_t first = 0; first < steps * each; first += each)
                    for (std::size_t o = block * kBlock; o < (block + 1) * kBlock; ++o)
                        for (std::size_t i = first; i < first + each; ++i, to += kernels_.int8_bytes) {
                            const bool real = o < channels_ && i < length;
                            const std::int16_t value = real ? weight[(o * taps_.segments.size() + s) * length + i] : 0;
                            std::memcpy(to, &value, kernels_.int8_bytes);  // little-endian: one byte or both
                        }
        for (Segment& segment : taps_.segments) segment.length = static_cast<std::uint32_t>(steps * step_bytes());
    }

    void make_base(const Reader& reader, const std::int8_t* weight) {
        const std::size_t kw = window_.x.kernel, taps = window_.y.kernel * kw, width = words_for(channels_) * kBlock;
        const std::vector<float> zero = reader.channel_values("zero", in_.channels, 0.0f);
        borders_ = find_borders(window_);
        reader.require(borders_.kinds.size() * width <= kLargestBuffer, "the borders differ too much");
        base_.resize(borders_.kinds.size() * width, 0.0f);
        std::vector<double> of_tap(taps);
        for (std::size_t o = 0; o < channels_; ++o) {
            for (double& sum : of_tap) {
                sum = 0.0;
                for (std::size_t c = 0; c < in_.channels; ++c) sum += static_cast<double>(*weight++) * zero[c];
            }
            for (std::size_t kind = 0; kind < borders_.kinds.size(); ++kind) {
                double sum = 0.0;
                for (std::size_t t = 0; t < taps; ++t)
                    if (borders_.kinds[kind].inside(t / kw, t % kw)) sum += of_tap[t];
                base_[kind * width + o] = static_cast<float>(sum);
            }
        }
    }

    const Buffer& in_;
    Window window_;
    const Kernels& kernels_;
    std::size_t channels_;
    FinishSpec finish_;
    std::size_t block_bytes_ = 0;
    AlignedBytes weights_;
    Taps taps_;
    Borders borders_;
    std::vector<float> base_;
};

}  // namespace

Made make_int8_conv(const Reader& reader) { return std::make_unique<Int8Convolution>(reader); }

}  // namespace rbnn
