// Binary convolution (and binary linear: a 1×1 kernel on one pixel).
//
// Padded taps are zero words in the operand, so the kernels never branch:  with `outside` the padded taps of a pixel
//
//   acc = Σ_inside (C − 2·popcount(a xor w)) = inside·C + 2·Σ_outside popcount(w) − 2·(popcount over all taps)
//
// and everything but the last term is `base`, one row of numbers per kind of border.
#include <algorithm>
#include <cstring>
#include <map>

#include "operation.h"
#include "threads.h"
#include "window.h"

namespace rbnn {
namespace {

std::size_t count_bits(Word x) {
    std::size_t count = 0;
    for (; x != 0; x &= x - 1) ++count;
    return count;
}

// Ors `bits` bits of `from` into `to` at bit `at`.  `to` has a word more than its bits need.
void append_bits(const Word* from, std::size_t bits, Word* to, std::size_t at) {
    const std::size_t shift = at % kWordBits;
    to += at / kWordBits;
    for (std::size_t i = 0; i < words_for(bits); ++i, ++to) {
        to[0] |= from[i] << shift;
        if (shift != 0) to[1] |= from[i] >> (kWordBits - shift);
    }
}

class BinaryConvolution final : public Operation {
public:
    explicit BinaryConvolution(const Reader& reader)
        : in_(reader.input("x", true)),
          window_(read_window(reader, in_, false)),
          kernels_(reader.kernels),
          channels_(out_channels(reader)),
          finish_(reader, window_.y.count, window_.x.count, channels_) {
        const std::size_t taps = window_.y.kernel * window_.x.kernel;
        const std::size_t apart = taps * words_for(in_.channels), together = words_for(taps * in_.channels);
        dense_ = together < apart;
        row_words_ = dense_ ? together : apart;
        reader.require(row_words_ * kWordBits * words_for(channels_) * kBlock <= (std::size_t{1} << 33),
                       "the weight is too large");
        const std::vector<Word> rows = read_weights(reader);
        tile(rows);
        lay_out(reader);
        make_base(reader, rows, reader.number("pad", 0.0) == 0.0);
    }

    void run(const Run& run) const override {
        auto* operand = reinterpret_cast<std::uint8_t*>(run.arena + scratch_offset);
        if (dense_)
            gather(run, operand);
        else
            copy_padded(run, operand);
        const BinaryConv job{operand,         offsets_.data(), bases_.data(),      segments_.data(), segments_.size(),
                             weights_.data(), block_bytes_,    base_.data(), finish_.at(run)};
        const std::size_t pixels = window_.positions(), blocks = words_for(channels_);
        // Parts of about 4 million multiply-adds: large enough to hand out, small enough to spread.
        const std::size_t work = std::max<std::size_t>(row_words_ * kWordBits * kBlock, 1);
        const std::size_t chunk = std::clamp<std::size_t>((std::size_t{1} << 22) / work / 6 * 6, 6, pixels);
        const std::size_t chunks = (pixels + chunk - 1) / chunk;
        parallel_for(blocks * chunks, 1, run.threads, [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i) {
                const std::size_t first = i % chunks * chunk;
                kernels_.binary_conv(job, i / chunks, first, std::min(first + chunk, pixels));
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

    std::size_t in_words() const { return words_for(in_.channels); }

    // One row of words per output channel, taps in the order in which the operand has them.
    std::vector<Word> read_weights(const Reader& reader) const {
        const std::size_t bytes = (in_.channels + 7) / 8, taps = window_.y.kernel * window_.x.kernel;
        const Tensor& tensor =
            reader.tensor("weight", Tensor::Type::uint8, {channels_, window_.y.kernel, window_.x.kernel, bytes});
        const auto* from = static_cast<const std::uint8_t*>(tensor.data);
        std::vector<Word> rows(channels_ * row_words_ + 1, 0), tap(in_words());
        for (std::size_t o = 0; o < channels_; ++o)
            for (std::size_t t = 0; t < taps; ++t, from += bytes) {
                std::fill(tap.begin(), tap.end(), 0);
                for (std::size_t i = 0; i < bytes; ++i) tap[i / 8] |= static_cast<Word>(from[i]) << (i % 8 * 8);
                if (in_.channels % kWordBits != 0)
                    reader.require(tap.back() >> (in_.channels % kWordBits) == 0, "the weight has bits beyond its channels");
                append_bits(tap.data(), in_.channels, rows.data() + o * row_words_,
                            dense_ ? t * in_.channels : t * in_words() * kWordBits);
            }
        return rows;
    }

    void tile(const std::vector<Word>& rows) {
        block_bytes_ = kernels_.tiled_bytes(row_words_);
        weights_ = AlignedBytes(words_for(channels_) * block_bytes_);
        for (std::size_t block = 0; block < words_for(channels_); ++block)
            kernels_.tile_weights(rows.data() + block * kBlock * row_words_,
                                  std::min(kBlock, channels_ - block * kBlock), row_words_,
                                  weights_.data() + block * block_bytes_);
    }

    // Where each output pixel's taps lie in the operand.
    void lay_out(const Reader& reader) {
        const std::size_t unit = kernels_.operand_bytes, pixel_bytes = in_words() * unit;
        const std::size_t row_bytes = window_.x.padded() * pixel_bytes;
        offsets_.resize(window_.positions());
        std::size_t total;
        if (dense_) {
            total = window_.positions() * row_words_ * unit;
            for (std::size_t i = 0; i < offsets_.size(); ++i) offsets_[i] = static_cast<std::uint32_t>(i * row_words_ * unit);
            segments_ = {{0, static_cast<std::uint32_t>(row_words_ * unit)}};
        } else {
            total = window_.y.padded() * row_bytes;
            for (std::size_t y = 0; y < window_.y.count; ++y)
                for (std::size_t x = 0; x < window_.x.count; ++x)
                    offsets_[y * window_.x.count + x] =
                        static_cast<std::uint32_t>(window_.y.start(y) * row_bytes + window_.x.start(x) * pixel_bytes);
            for (std::size_t ky = 0; ky < window_.y.kernel; ++ky) {
                const std::size_t row = ky * window_.y.dilation * row_bytes;
                if (window_.x.dilation == 1)
                    add_segment(row, window_.x.kernel * pixel_bytes);
                else
                    for (std::size_t kx = 0; kx < window_.x.kernel; ++kx)
                        add_segment(row + kx * window_.x.dilation * pixel_bytes, pixel_bytes);
            }
        }
        reader.require(total < (std::size_t{1} << 31), "the input is too large");
        // A row of `gather` stands behind the operand.
        scratch_bytes = aligned(total) + (row_words_ + 1) * sizeof(Word);
    }

    void add_segment(std::size_t offset, std::size_t length) {
        segments_.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(length)});
    }

    void make_base(const Reader& reader, const std::vector<Word>& rows, bool zero_padding) {
        const std::size_t kh = window_.y.kernel, kw = window_.x.kernel, width = words_for(channels_) * kBlock;
        // set[o][ky][kx]: bits of a tap that are set.
        std::vector<std::int32_t> set(channels_ * kh * kw);
        for (std::size_t o = 0; o < channels_; ++o)
            for (std::size_t t = 0; t < kh * kw; ++t) set[o * kh * kw + t] = count_tap(rows.data() + o * row_words_, t);
        using Range = std::pair<std::size_t, std::size_t>;
        std::map<std::pair<Range, Range>, std::uint32_t> known;
        bases_.resize(window_.positions());
        for (std::size_t y = 0; y < window_.y.count; ++y)
            for (std::size_t x = 0; x < window_.x.count; ++x) {
                const Range all_rows{0, kh}, all_columns{0, kw};
                const Range ys = zero_padding ? window_.y.inside(y) : all_rows;
                const Range xs = zero_padding ? window_.x.inside(x) : all_columns;
                const auto [found, fresh] = known.try_emplace({ys, xs}, static_cast<std::uint32_t>(known.size()));
                bases_[y * window_.x.count + x] = found->second;
                if (!fresh) continue;
                reader.require(known.size() * width <= kLargestBuffer, "the borders differ too much");
                base_.resize(known.size() * width, 0);
                std::int32_t* base = base_.data() + (known.size() - 1) * width;
                const auto inside = (ys.second - ys.first) * (xs.second - xs.first) * in_.channels;
                for (std::size_t o = 0; o < channels_; ++o) {
                    std::int32_t outside = 0;
                    for (std::size_t ky = 0; ky < kh; ++ky)
                        for (std::size_t kx = 0; kx < kw; ++kx)
                            if (ky < ys.first || ky >= ys.second || kx < xs.first || kx >= xs.second)
                                outside += set[(o * kh + ky) * kw + kx];
                    base[o] = static_cast<std::int32_t>(inside) + 2 * outside;
                }
            }
    }

    std::int32_t count_tap(const Word* row, std::size_t tap) const {
        std::size_t count = 0;
        if (dense_) {
            for (std::size_t bit = tap * in_.channels; bit < (tap + 1) * in_.channels; ++bit)
                count += row[bit / kWordBits] >> (bit % kWordBits) & 1;
        } else {
            for (std::size_t i = 0; i < in_words(); ++i) count += count_bits(row[tap * in_words() + i]);
        }
        return static_cast<std::int32_t>(count);
    }

    // Pixels lie in the operand as in the picture, with a margin of zeros.
    void copy_padded(const Run& run, std::uint8_t* operand) const {
        const std::size_t pixel_bytes = in_words() * kernels_.operand_bytes;
        const std::size_t row_bytes = window_.x.padded() * pixel_bytes, margin = window_.x.padding * pixel_bytes;
        const Word* in = run.words(in_);
        std::memset(operand, 0, window_.y.padding * row_bytes);
        operand += window_.y.padding * row_bytes;
        for (std::size_t y = 0; y < in_.height; ++y, operand += row_bytes, in += in_.width * in_words()) {
            std::memset(operand, 0, margin);
            kernels_.expand(in, in_.width * in_words(), operand + margin);
            std::memset(operand + row_bytes - margin, 0, margin);
        }
        std::memset(operand, 0, window_.y.padding * row_bytes);
    }

    // Narrow inputs would leave most of each word empty: each output pixel gets its own row, tap after tap without gaps.
    void gather(const Run& run, std::uint8_t* operand) const {
        const std::size_t words = in_words(), taps_x = window_.x.kernel;
        auto* row = reinterpret_cast<Word*>(operand + aligned(window_.positions() * row_words_ * kernels_.operand_bytes));
        const Word* in = run.words(in_);
        for (std::size_t y = 0; y < window_.y.count; ++y) {
            const auto [y0, y1] = window_.y.inside(y);
            for (std::size_t x = 0; x < window_.x.count; ++x, operand += row_words_ * kernels_.operand_bytes) {
                const auto [x0, x1] = window_.x.inside(x);
                std::fill(row, row + row_words_ + 1, 0);
                for (std::size_t ky = y0; ky < y1; ++ky) {
                    const std::size_t from_y = window_.y.start(y) + ky * window_.y.dilation - window_.y.padding;
                    for (std::size_t kx = x0; kx < x1; ++kx) {
                        const std::size_t from_x = window_.x.start(x) + kx * window_.x.dilation - window_.x.padding;
                        append_bits(in + (from_y * in_.width + from_x) * words, in_.channels, row,
                                    (ky * taps_x + kx) * in_.channels);
                    }
                }
                kernels_.expand(row, row_words_, operand);
            }
        }
    }

    const Buffer& in_;
    Window window_;
    const Kernels& kernels_;
    std::size_t channels_;
    FinishSpec finish_;
    bool dense_ = false;
    std::size_t row_words_ = 0, block_bytes_ = 0;
    AlignedBytes weights_;
    std::vector<std::uint32_t> offsets_, bases_;
    std::vector<Segment> segments_;
    std::vector<std::int32_t> base_;
};

}  // namespace

Made make_binary_conv(const Reader& reader) { return std::make_unique<BinaryConvolution>(reader); }

}  // namespace rbnn
