// Binary convolution in groups: the bits of each group are extracted from the image and convolved separately.
//
// A word of output signs may contain several groups.  The sums of all groups are therefore collected in blocks and
// finished together.
#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/binary_conv.h"
#include "ops/operations.h"

namespace rbnn {
namespace {

constexpr std::int32_t kWhole = 1 << 24;  // floats are exact up to here

// Extracts the bits [first, first + count) of each pixel.
void cut_out(const Word* in, std::size_t pixels, std::size_t words, std::size_t first, std::size_t count, Word* out) {
    const std::size_t begin = first / kWordBits, right = first % kWordBits, n = words_for(count);
    const Word last = ~Word{0} >> (n * kWordBits - count);
    for (std::size_t pixel = 0; pixel < pixels; ++pixel, in += words, out += n) {
        for (std::size_t i = 0; i < n; ++i) {
            const std::size_t at = begin + i;
            // Two shifts, because a shift by 64 is undefined.
            out[i] = in[at] >> right | (at + 1 < words ? in[at + 1] << 1 << (kWordBits - 1 - right) : 0);
        }
        out[n - 1] &= last;
    }
}

class GroupedBinaryConv final : public Convolution {
public:
    GroupedBinaryConv(const ConvolutionParameters& p, const std::uint8_t* weight, bool zero_padding, std::size_t groups)
        : Convolution(p),
          kernels_(p.kernels),
          groups_(groups),
          each_(p.in.channels / groups),
          outputs_(p.finish.channels / groups),
          pixels_(p.geometry.positions()),
          convolution_(p.kernels, p.geometry, each_, outputs_, weight, zero_padding, p.kept, groups),
          ones_(words_for(outputs_) * kBlockChannels, 1.0f),
          zeros_(ones_.size(), 0.0f) {
        if (!finish_.threshold.empty()) {  // acc > threshold, compared as floats
            require(p.geometry.y.kernel * p.geometry.x.kernel * each_ <= kWhole,
                    "too many taps for a threshold with groups");
            std::transform(
                finish_.threshold.begin(), finish_.threshold.end(), finish_.level.begin(),
                [](std::int32_t threshold) { return static_cast<float>(std::clamp(threshold, -kWhole - 2, kWhole)); });
            finish_.threshold.clear();
        }
        bits_offset_ = aligned(convolution_.scratch_bytes());
        one_offset_ = aligned(bits_offset_ + in_.pixels() * words_for(each_) * sizeof(Word));
        all_offset_ = aligned(one_offset_ + pixels_ * outputs_ * sizeof(float));
        scratch_bytes = all_offset_ + pixels_ * words_for(finish_.channels) * kBlockChannels * sizeof(float);
    }

    void run(const Workspace& work) const override {
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        auto* scratch = reinterpret_cast<std::uint8_t*>(work.arena + scratch_offset);
        auto* bits = reinterpret_cast<Word*>(scratch + bits_offset_);
        auto *one = reinterpret_cast<float*>(scratch + one_offset_),
             *all = reinterpret_cast<float*>(scratch + all_offset_);
        const std::size_t words = words_for(in_.channels), blocks = words_for(finish_.channels);
        const Finish plain{outputs_,          ones_.data(), zeros_.data(), nullptr,
                           Activation::clamp, -kInfinity,   kInfinity,     nullptr,
                           zeros_.data(),     nullptr,      one,           nullptr};
        if (finish_.channels % kBlockChannels)  // channels beyond the last must not overflow
            std::fill_n(all + (blocks - 1) * pixels_ * kBlockChannels, pixels_ * kBlockChannels, 0.0f);
        const std::size_t values = in_.pixels() + pixels_ * outputs_;
        for (std::size_t group = 0; group < groups_; ++group) {
            if (work.call.stop(values)) return;
            parallel_for(in_.pixels(), 1024, work.threads, [&](std::size_t begin, std::size_t end) {
                cut_out(work.words(in_) + begin * words, end - begin, words, group * each_, each_,
                        bits + begin * words_for(each_));
            });
            convolution_.run(bits, scratch, plain, work.threads, work.call, group);
            put(one, group, all);
        }
        const Finish finish = finish_.at(work);
        calculate(blocks * pixels_, 256, work.threads, work.call, [&](std::size_t begin, std::size_t end) {
            for (std::size_t first = begin, last; first < end; first = last) {  // of one block
                last = std::min(end, (first / pixels_ + 1) * pixels_);
                kernels_.finish(finish, all + first * kBlockChannels, first / pixels_, first % pixels_,
                                (last - 1) % pixels_ + 1);
            }
        });
    }

private:
    // Copies the sums of one group, pixels × outputs, to those of all groups, blocks × pixels × 64.
    void put(const float* one, std::size_t group, float* all) const {
        for (std::size_t c = 0, n; c < outputs_; c += n) {
            const std::size_t channel = group * outputs_ + c, at = channel % kBlockChannels;
            n = std::min(outputs_ - c, kBlockChannels - at);
            float* to = all + channel / kBlockChannels * pixels_ * kBlockChannels + at;
            for (std::size_t pixel = 0; pixel < pixels_; ++pixel)
                std::memcpy(to + pixel * kBlockChannels, one + pixel * outputs_ + c, n * sizeof(float));
        }
    }

    const Kernels& kernels_;
    std::size_t groups_, each_, outputs_, pixels_;
    BinaryConvolution convolution_;
    std::vector<float> ones_, zeros_;
    std::size_t bits_offset_, one_offset_, all_offset_;
};

}  // namespace

Made make_grouped_binary_conv(const ConvolutionParameters& p, const std::uint8_t* weight, bool zero_padding,
                              std::size_t groups) {
    return std::make_unique<GroupedBinaryConv>(p, weight, zero_padding, groups);
}

}  // namespace rbnn
