// Convolution of bytes with int8 weights: the first layer of a network whose input is images of bytes.
//
// A byte u represents the value u − zero[c], and padding represents 0.  With `inside` the taps inside the image,
//
//   acc = Σ_inside w·(u − zero) = Σ_all w·u − Σ_inside w·zero          (margins are bytes 0)
//
// The first sum has only integers and is exact.  The second is `base`, one row of numbers for each kind of border.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/operations.h"
#include "ops/row_sum_conv.h"
#include "ops/toom_cook.h"

namespace rbnn {
namespace {

constexpr std::size_t kMostTaps = 1 << 16;  // kMostTaps × 255 × 128 < 2³¹

class Int8Convolution final : public RowSumConvolution<Int8Conv> {
public:
    Int8Convolution(const ConvolutionParameters& p, const std::int8_t* weight, const std::vector<float>& zero)
        : RowSumConvolution(p) {
        require(kernel_taps() <= kMostTaps, "has more taps than can be added up in whole numbers");
        p.kept.weights(channels_, kernel_taps(), sizeof(std::int16_t));
        const std::size_t pixel = in_.channels * kernels_.int8_bytes;
        // Sums of bytes need 16 bits.
        const bool by_fours = kernels_.int8_bytes == sizeof(std::int16_t) &&
                              fours_pay(geometry_, in_.channels, channels_) && points_pay(geometry_, in_.channels);
        const std::size_t row = geometry_.x.padded() * pixel;
        const std::size_t total = (by_fours ? point_rows(geometry_) : geometry_.y.padded()) * row;
        require(total < (std::size_t{1} << 31), "the input is too large");
        row_sums_ = by_fours ? lay_out_points(geometry_, row, pixel)
                             : lay_out_sum(geometry_, row, pixel, pixel, kernels_.int8_bytes);
        for (RowSum& sum : row_sums_.all) tile(sum, weight);
        make_base(weight, zero, p.kept);
        scratch_bytes = total + step_bytes();  // the last step may extend beyond the end
    }

private:
    void prepare(const Workspace& work) const override {
        std::uint8_t* to = operand(work);
        std::memset(to + scratch_bytes - step_bytes(), 0, step_bytes());
        if (row_sums_.by_fours())
            return evaluate(kernels_, geometry_, in_.channels, work.bytes(in_), reinterpret_cast<std::int16_t*>(to),
                            work.threads);
        const std::size_t row = in_.width * in_.channels;
        copy_padded(geometry_, in_.channels * kernels_.int8_bytes, to, work.threads,
                    [&](std::size_t y, std::uint8_t* at) { kernels_.widen_bytes(work.bytes(in_) + y * row, row, at); });
    }

    Int8Conv row_sum(const Workspace& work, std::size_t i) const override {
        const std::vector<Segment>& segments = row_sums_.all[i].segments;
        return {operand(work), row_sums_.offsets.data(), borders_.of_pixel.data(), segments.data(), segments.size(),
                weights_[i].data(), block_bytes_[i], base_.data(), finish_.at(work)};
    }
    void convolve(const Int8Conv& job, std::size_t block, std::size_t first, std::size_t last) const override {
        kernels_.int8_conv(job, block, first, last);
    }
    void convolve(const FourRows<Int8Conv>& job, std::size_t block, std::size_t first,
                  std::size_t last) const override {
        kernels_.int8_four_rows(job, block, first, last);
    }
    std::size_t chunk() const override {
        return (std::size_t{1} << 21) / (row_sums_.taps() * kBlockChannels * kernels_.int8_bytes);
    }

    std::uint8_t* operand(const Workspace& work) const {
        return reinterpret_cast<std::uint8_t*>(work.arena + scratch_offset);
    }
    std::size_t step_bytes() const { return kernels_.int8_bytes * kernels_.int8_values; }

    // Blocks × steps × 64 channels × the values of a step, each as wide as in the operand.  Segments are padded to
    // whole steps, and the additional values are multiplied by weights of 0.
    void tile(RowSum& sum, const std::int8_t* weight) {
        const std::size_t each = kernels_.int8_values, blocks = words_for(channels_);
        const std::size_t length = sum.taps() / std::max<std::size_t>(sum.segments.size(), 1),
                          steps = (length + each - 1) / each;
        block_bytes_.push_back(sum.segments.size() * steps * kBlockChannels * step_bytes());
        weights_.emplace_back(blocks * block_bytes_.back());
        std::uint8_t* to = weights_.back().data();
        for (std::size_t block = 0; block < blocks; ++block)
            for (std::size_t s = 0; s < sum.segments.size(); ++s)
                for (std::size_t first = 0; first < steps * each; first += each)
                    for (std::size_t o = block * kBlockChannels; o < (block + 1) * kBlockChannels; ++o)
                        for (std::size_t i = first; i < first + each; ++i, to += kernels_.int8_bytes) {
                            const bool real = o < channels_ && i < length;
                            const auto value = static_cast<std::int16_t>(
                                real ? sum.weight(weight + o * kernel_taps(), s * length + i) : 0.0);
                            std::memcpy(to, &value, kernels_.int8_bytes);  // little-endian: one byte or both
                        }
        for (Segment& segment : sum.segments) segment.length = static_cast<std::uint32_t>(steps * step_bytes());
    }

    void make_base(const std::int8_t* weight, const std::vector<float>& zero, Kept& kept) {
        const std::size_t width = words_for(channels_) * kBlockChannels;
        borders_ = find_borders(geometry_);
        kept.borders(borders_.kinds.size(), width);
        base_.resize(borders_.kinds.size() * width, 0.0f);
        TapSums<double> sums(geometry_.y.kernel, geometry_.x.kernel);
        for (std::size_t o = 0; o < channels_; ++o) {
            sums.set([&](std::size_t) {
                double sum = 0.0;
                for (std::size_t c = 0; c < in_.channels; ++c) sum += static_cast<double>(*weight++) * zero[c];
                return sum;
            });
            for (std::size_t kind = 0; kind < borders_.kinds.size(); ++kind) {
                const double inside = sums.inside(borders_.kinds[kind]);
                require(std::fabs(inside) < 3e38, "the zero points are too large for the weights");
                base_[kind * width + o] = static_cast<float>(inside);
            }
        }
    }

    std::vector<std::size_t> block_bytes_;  // of each sum
    Borders borders_;
    std::vector<float> base_;
};

}  // namespace

Made make_int8_conv(const ConvolutionParameters& p, const std::int8_t* weight, const std::vector<float>& zero) {
    return std::make_unique<Int8Convolution>(p, weight, zero);
}

}  // namespace rbnn
