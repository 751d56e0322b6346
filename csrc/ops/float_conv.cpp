// Float convolution, including grouped and depthwise.  A linear layer is a 1×1 kernel on one pixel.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/operations.h"
#include "ops/row_sum_conv.h"

namespace rbnn {
namespace {

class FloatConvolution final : public RowSumConvolution<FloatConv> {
public:
    template <class Number>
    FloatConvolution(const ConvolutionParameters& p, const Number* weight, std::size_t groups)
        : RowSumConvolution(p), groups_(groups) {
        const std::size_t each = in_.channels / groups_;
        const bool by_fours = groups_ == 1 && fours_pay(geometry_, in_.channels, channels_) &&
                              summable(weight, channels_ * kernel_taps());
        RowSums one_by_one = lay_out_sum(geometry_, row(), in_.channels, each, 1);
        if (by_fours) {
            row_sums_ = lay_out_differences(geometry_, row(), in_.channels);
            one_by_one_ = std::move(one_by_one);
        } else {
            row_sums_ = std::move(one_by_one);
        }
        p.kept.weights(channels_, kernel_taps() / groups_, sizeof(float));
        // A layer with ten outputs need not read weights for sixty-four.
        if (groups_ == 1 && channels_ <= kernels_.float_channels) weight_stride_ = kernels_.float_channels;
        for (const RowSum& sum : row_sums_.all) weights_.push_back(tiled(sum, weight));
        if (by_fours) one_by_one_weights_ = tiled(one_by_one_.all[0], weight);
        if (copied())
            scratch_bytes = (by_fours ? difference_rows(geometry_) : geometry_.y.padded()) * row() * sizeof(float);
        if (by_fours) scratch_bytes += row_sums_.offsets.size();  // which positions are uneven
    }

private:
    void prepare(const Workspace& work) const override {
        if (!copied()) return;
        const std::size_t unpadded = in_.width * in_.channels;
        copy_padded(geometry_, in_.channels * sizeof(float), reinterpret_cast<std::uint8_t*>(copy(work)), work.threads,
                    [&, in = work.floats(in_)](std::size_t y, std::uint8_t* to) {
                        std::memcpy(to, in + y * unpadded, unpadded * sizeof(float));
                    });
        if (!row_sums_.by_fours()) return;
        make_differences(kernels_, geometry_, row(), copy(work), work.threads);
        find_uneven(kernels_, geometry_, row(), in_.channels, copy(work), uneven(copy(work)), work.threads, work.call);
    }

    FloatConv row_sum(const Workspace& work, std::size_t i) const override {
        const RowSum& sum = row_sums_.all[i];
        return {copied() ? copy(work) : work.floats(in_), row_sums_.offsets.data(), sum.segments.data(),
                sum.segments.size(), sum.taps(), reinterpret_cast<const float*>(weights_[i].data()), weight_stride_,
                finish_.at(work)};
    }
    void convolve(const FloatConv& job, std::size_t block, std::size_t first, std::size_t last) const override {
        if (groups_ == 1)
            kernels_.float_conv(job, block, first, last);
        else
            grouped(job, block, first, last);
    }
    void convolve(const FourRows<FloatConv>& job, std::size_t block, std::size_t first,
                  std::size_t last) const override {
        const std::uint8_t* odd = uneven(const_cast<float*>(job.sums[0].input));
        while (first < last) {
            const std::size_t end = static_cast<std::size_t>(std::find(odd + first, odd + last, odd[first] ^ 1) - odd);
            if (odd[first])
                convolve_one_by_one(job.sums[0], block, first, end);
            else
                kernels_.float_four_rows(job, block, first, end);
            first = end;
        }
    }
    // Computes the four output rows of each position separately.
    void convolve_one_by_one(const FloatConv& one, std::size_t block, std::size_t first, std::size_t last) const {
        const std::size_t width = geometry_.x.count;
        const RowSum& sum = one_by_one_.all[0];
        const FloatConv job{one.input, one_by_one_.offsets.data(), sum.segments.data(), sum.segments.size(), sum.taps(),
                            reinterpret_cast<const float*>(one_by_one_weights_.data()), weight_stride_, one.finish};
        for (std::size_t end; first < last; first = end) {
            end = std::min(last, (first / width + 1) * width);
            for (std::size_t y = first / width * 4; y < std::min(first / width * 4 + 4, geometry_.y.count); ++y)
                kernels_.float_conv(job, block, y * width + first % width, y * width + first % width + (end - first));
        }
    }
    std::size_t chunk() const override { return (std::size_t{1} << 19) / (row_sums_.taps() * kBlockChannels); }

    std::size_t row() const { return geometry_.x.padded() * in_.channels; }
    bool copied() const { return row_sums_.by_fours() || geometry_.y.padding != 0 || geometry_.x.padding != 0; }
    float* copy(const Workspace& work) const { return reinterpret_cast<float*>(work.arena + scratch_offset); }
    // Stored after the operand.
    std::uint8_t* uneven(float* operand) const {
        return reinterpret_cast<std::uint8_t*>(operand + difference_rows(geometry_) * row());
    }

    // Whether sums of four weights, multiplied by a large difference, stay within the range of floats.
    template <class Number>
    static bool summable(const Number* weight, std::size_t count) {
        return std::all_of(weight, weight + count, [](Number w) { return std::fabs(static_cast<float>(w)) < 1e7f; });
    }

    // Blocks × taps × 64 channels.
    template <class Number>
    AlignedBytes tiled(const RowSum& sum, const Number* from) const {
        const std::size_t blocks = words_for(channels_), kernel = kernel_taps() / groups_;
        AlignedBytes weights(blocks * sum.taps() * weight_stride_ * sizeof(float));
        auto* to = reinterpret_cast<float*>(weights.data());
        for (std::size_t block = 0; block < blocks; ++block)
            for (std::size_t tap = 0; tap < sum.taps(); ++tap)
                for (std::size_t c = block * kBlockChannels; c < block * kBlockChannels + weight_stride_; ++c, ++to) {
                    *to = c < channels_ ? static_cast<float>(sum.weight(from + c * kernel, tap)) : 0.0f;
                    require(std::isfinite(*to), "the weight is not finite");
                }
        return weights;
    }

    void grouped(const FloatConv& job, std::size_t block, std::size_t first, std::size_t last) const {
        const std::size_t each = in_.channels / groups_, outputs = channels_ / groups_, begin = block * kBlockChannels;
        const std::size_t count = std::min(kBlockChannels, channels_ - begin);
        for (std::size_t pixel = first; pixel < last; ++pixel) {
            float sums[kBlockChannels] = {};
            const float* in = job.input + job.pixel_offset[pixel];
            const float* w = job.weights + block * job.taps * kBlockChannels;
            for (const Segment& segment : row_sums_.all[0].segments) {
                if (each == 1 && outputs == 1) {  // depthwise: output channel c reads input channel c
                    kernels_.multiply_add_into(sums, in + segment.offset + begin, w, count);
                    w += kBlockChannels;
                    continue;
                }
                for (std::size_t c = 0, end; c < count; c = end) {  // the channels of one group read the same values
                    const std::size_t group = (begin + c) / outputs;
                    end = std::min(count, (group + 1) * outputs - begin);
                    for (std::size_t k = 0; k < each; ++k) {
                        const float x = in[segment.offset + group * each + k];
                        for (std::size_t i = c; i < end; ++i) sums[i] += x * w[k * kBlockChannels + i];
                    }
                }
                w += each * kBlockChannels;
            }
            kernels_.finish(job.finish, sums, block, pixel, pixel + 1);
        }
    }

    std::size_t groups_, weight_stride_ = kBlockChannels;
    RowSums one_by_one_;  // for positions that are uneven
    AlignedBytes one_by_one_weights_;
};

}  // namespace

Made make_float_conv(const ConvolutionParameters& p, const float* weight, std::size_t groups) {
    return std::make_unique<FloatConvolution>(p, weight, groups);
}
Made make_float_conv(const ConvolutionParameters& p, const std::int8_t* weight, std::size_t groups) {
    return std::make_unique<FloatConvolution>(p, weight, groups);
}

}  // namespace rbnn
