// Binary convolution (and binary linear: a 1×1 kernel on one pixel).
//
// Padded taps are zero words in the operand, so the kernels never branch:  acc = base − 2·(popcount over all taps), with one row
// of numbers `base` per kind of border (`border_base`).
#include <algorithm>
#include <cstring>

#include "ops/convolution.h"

namespace rbnn {
namespace {

std::size_t ones(const Word* words, std::size_t count) {
    std::size_t total = 0;
    for (std::size_t i = 0; i < count; ++i) total += static_cast<std::size_t>(__builtin_popcountll(words[i]));
    return total;
}

// Ors `count` bits of `from`, starting at bit `first`, into `to` at bit `at`.  Both have a word more than their bits need.
void or_bits(const Word* from, std::size_t first, std::size_t count, Word* to, std::size_t at) {
    while (count > 0) {
        const std::size_t right = first % kWordBits, left = at % kWordBits, n = std::min(count, kWordBits);
        // Two shifts each, since a shift by 64 is undefined.
        Word word = from[first / kWordBits] >> right | from[first / kWordBits + 1] << 1 << (kWordBits - 1 - right);
        word &= ~Word{0} >> (kWordBits - n);
        to[at / kWordBits] |= word << left;
        to[at / kWordBits + 1] |= word >> 1 >> (kWordBits - 1 - left);
        first += n, at += n, count -= n;
    }
}

class BinaryConvolution final : public Convolution {
public:
    explicit BinaryConvolution(const Reader& reader) : Convolution(reader, reader.input("x", Buffer::Type::bits)) {
        const std::size_t taps = geometry_.y.kernel * geometry_.x.kernel;
        const std::size_t apart = taps * words_for(in_.channels), together = words_for(taps * in_.channels);
        if (in_.channels % kernels_.unit_bits == 0)
            layout_ = Layout::close;
        else
            layout_ = together < apart ? Layout::gathered : Layout::padded;
        pixel_bits_ = layout_ == Layout::padded ? words_for(in_.channels) * kWordBits : in_.channels;
        if (layout_ == Layout::gathered)
            segment_taps_ = taps;
        else
            segment_taps_ = geometry_.x.dilation == 1 ? geometry_.x.kernel : 1;
        const std::size_t steps = (segment_taps_ * pixel_bits_ + kernels_.step_bits - 1) / kernels_.step_bits;
        segment_bits_ = steps * kernels_.step_bits;
        row_words_ = words_for(taps / segment_taps_ * segment_bits_);
        reader.keep_weights(channels_, apart, sizeof(Word));
        const std::vector<Word> rows = read_weights(reader);
        tile(rows);
        find_taps(reader);
        make_base(reader, rows, reader.number("pad", 0.0) == 0.0);
    }

    void run(const Workspace& work) const override {
        auto* operand = reinterpret_cast<std::uint8_t*>(work.arena + scratch_offset);
        if (layout_ == Layout::gathered)
            gather(work, operand);
        else
            copy_rows(work, operand);
        const BinaryConv job{operand, taps_.offsets.data(), pixels_.data(), geometry_.x.count, geometry_.positions(),
                             borders_.of_pixel.data(), taps_.segments.data(), taps_.segments.size(), weights_.data(),
                             block_bytes_, base_.data(), finish_.at(work)};
        // Parts of about 4 million multiply-adds: large enough to hand out, small enough to spread.
        const std::size_t macs = row_words_ * kWordBits * kBlockChannels * kernels_.rows_together;
        over_blocks(pixels_.size(), (std::size_t{1} << 22) / macs, work.threads,
                    [&](std::size_t block, std::size_t first, std::size_t last) { kernels_.binary_conv(job, block, first, last); });
    }

private:
    std::size_t in_words() const { return words_for(in_.channels); }

    // The first bit of a tap in a row of weights.
    std::size_t tap_bit(std::size_t tap) const {
        return tap / segment_taps_ * segment_bits_ + tap % segment_taps_ * pixel_bits_;
    }

    // One row of words per output channel, taps in the order in which the operand has them.
    std::vector<Word> read_weights(const Reader& reader) const {
        const std::size_t bytes = (in_.channels + 7) / 8, taps = geometry_.y.kernel * geometry_.x.kernel;
        const Tensor& tensor =
            reader.tensor("weight", Tensor::Type::uint8, {channels_, geometry_.y.kernel, geometry_.x.kernel, bytes});
        const auto* from = static_cast<const std::uint8_t*>(tensor.data);
        std::vector<Word> rows(channels_ * row_words_ + 1, 0), tap(in_words() + 1);
        for (std::size_t o = 0; o < channels_; ++o)
            for (std::size_t t = 0; t < taps; ++t, from += bytes) {
                std::fill(tap.begin(), tap.end(), 0);
                for (std::size_t i = 0; i < bytes; ++i) tap[i / 8] |= static_cast<Word>(from[i]) << (i % 8 * 8);
                if (in_.channels % kWordBits != 0)
                    reader.require(tap[in_words() - 1] >> (in_.channels % kWordBits) == 0, "the weight has bits beyond its channels");
                or_bits(tap.data(), 0, in_.channels, rows.data() + o * row_words_, tap_bit(t));
            }
        return rows;
    }

    void tile(const std::vector<Word>& rows) {
        block_bytes_ = kernels_.tiled_bytes(row_words_);
        weights_ = AlignedBytes(words_for(channels_) * block_bytes_);
        for (std::size_t block = 0; block < words_for(channels_); ++block)
            kernels_.tile_weights(rows.data() + block * kBlockChannels * row_words_,
                                  std::min(kBlockChannels, channels_ - block * kBlockChannels), row_words_,
                                  weights_.data() + block * block_bytes_);
    }

    // Where each output pixel's taps lie in the operand.
    void find_taps(const Reader& reader) {
        const std::size_t pixel_bytes = bytes(pixel_bits_), row_bytes = geometry_.x.padded() * pixel_bytes;
        for (std::size_t y = 0; y < geometry_.y.count; y += kernels_.rows_together)
            for (std::size_t x = 0; x < geometry_.x.count; ++x) pixels_.push_back(static_cast<std::uint32_t>(y * geometry_.x.count + x));
        std::size_t total = geometry_.y.padded() * row_bytes;
        if (layout_ == Layout::gathered) {
            const std::size_t each = bytes(row_words_ * kWordBits);
            total = pixels_.size() * each;
            for (std::size_t i = 0; i < pixels_.size(); ++i) taps_.offsets.push_back(static_cast<std::uint32_t>(i * each));
            taps_.segments = {{0, static_cast<std::uint32_t>(each)}};
        } else {
            taps_ = lay_out(geometry_, row_bytes, pixel_bytes, pixel_bytes);
            std::transform(pixels_.begin(), pixels_.end(), taps_.offsets.begin(),
                           [&](std::uint32_t pixel) { return taps_.offsets[pixel]; });  // a position is never behind its pixel
            taps_.offsets.resize(pixels_.size());
        }
        nothing_.assign(std::max(in_.width * in_words(), geometry_.x.count * row_words_) + 1, 0);
        reader.require(total < (std::size_t{1} << 31), "the input is too large");
        // `expand` writes whole words: the last may reach over the end.  `gather` keeps its rows behind the operand.
        operand_bytes_ = aligned(total + bytes(kWordBits));
        scratch_bytes = operand_bytes_;
        if (layout_ == Layout::gathered)
            scratch_bytes += (geometry_.y.kernel * line_words() + 2 * geometry_.x.count * row_words_ + 1) * sizeof(Word);
    }

    // Bytes of the operand for so many bits.
    std::size_t bytes(std::size_t bits) const { return bits * kernels_.operand_bytes / kWordBits; }
    // Words of a padded line of pixels without gaps, and one more for or_bits.
    std::size_t line_words() const { return words_for(geometry_.x.padded() * in_.channels) + 1; }

    void make_base(const Reader& reader, const std::vector<Word>& rows, bool zero_padding) {
        const std::size_t kh = geometry_.y.kernel, kw = geometry_.x.kernel, width = words_for(channels_) * kBlockChannels;
        if (zero_padding)
            borders_ = find_borders(geometry_);
        else  // taps in the padding are −1 like any other
            borders_ = {{{{0, kh}, {0, kw}}}, std::vector<std::uint32_t>(geometry_.positions(), 0)};
        reader.keep_borders(borders_.kinds.size(), width);
        base_.resize(borders_.kinds.size() * width, 0);
        TapSums<std::int64_t> set(kh, kw);  // bits of taps that are set
        for (std::size_t o = 0; o < channels_; ++o) {
            set.set([&](std::size_t tap) { return count_tap(rows.data() + o * row_words_, tap); });
            for (std::size_t kind = 0; kind < borders_.kinds.size(); ++kind)
                base_[kind * width + o] = border_base(set, borders_.kinds[kind], in_.channels);
        }
    }

    std::int32_t count_tap(const Word* row, std::size_t tap) const {
        const std::size_t first = tap_bit(tap);
        std::int64_t count = 0;
        if (first % kWordBits == 0 && in_.channels % kWordBits == 0)
            return static_cast<std::int32_t>(ones(row + first / kWordBits, in_words()));
        for (std::size_t bit = first; bit < first + in_.channels; ++bit)
            count += static_cast<std::int64_t>(row[bit / kWordBits] >> (bit % kWordBits) & 1);
        return static_cast<std::int32_t>(count);
    }

    // Pixels lie in the operand as in the picture, with a margin of zeros.
    void copy_rows(const Workspace& work, std::uint8_t* operand) const {
        const std::size_t pixel = bytes(pixel_bits_), row = geometry_.x.padded() * pixel, margin = geometry_.x.padding * pixel;
        const auto line = [&](std::size_t y) {  // of the padded picture
            const bool inside = y >= geometry_.y.padding && y < geometry_.y.padding + in_.height;
            return inside ? work.words(in_) + (y - geometry_.y.padding) * in_.width * in_words() : nothing_.data();
        };
        // `expand` writes whole words: where pixels are less, one row after the other mends what the last wrote too much.
        parallel_for(geometry_.y.padded(), 16, pixel_bits_ % kWordBits == 0 ? work.threads : 1,
                     [&](std::size_t begin, std::size_t end) {
                         for (std::size_t y = begin; y < end; ++y) {
                             std::uint8_t* to = operand + y * row;
                             std::memset(to, 0, margin);
                             kernels_.expand(line(y), line(y + geometry_.y.stride), in_.width, in_words(), pixel, to + margin);
                             std::memset(to + row - margin, 0, margin);
                         }
                     });
    }

    // Each output pixel gets its own row, tap after tap without gaps.
    void gather(const Workspace& work, std::uint8_t* operand) const {
        const std::size_t each = bytes(row_words_ * kWordBits), row = geometry_.x.count * row_words_;
        auto* lines = reinterpret_cast<Word*>(operand + operand_bytes_);
        Word *upper = lines + geometry_.y.kernel * line_words(), *lower = upper + row;
        for (std::size_t y = 0; y < geometry_.y.count; y += kernels_.rows_together, operand += geometry_.x.count * each) {
            // The lower one last: the word that or_bits wants behind `upper` is its first.
            std::fill(upper, upper + 2 * row + 1, 0);
            gather_line(work, y, lines, upper);
            if (kernels_.rows_together == 2 && y + 1 < geometry_.y.count) gather_line(work, y + 1, lines, lower);
            kernels_.expand(upper, lower, geometry_.x.count, row_words_, each, operand);
        }
    }

    // Line y of output pixels.  The input lines that it sees are made free of gaps first, so that taps side by side are
    // copied as one.
    void gather_line(const Workspace& work, std::size_t y, Word* lines, Word* rows) const {
        const std::size_t words = line_words(), channels = in_.channels;
        const bool adjoining = geometry_.x.dilation == 1;
        const std::size_t run_bits = adjoining ? geometry_.x.kernel * channels : channels;
        const std::size_t runs = adjoining ? 1 : geometry_.x.kernel;
        std::fill(lines, lines + geometry_.y.kernel * words, 0);
        const auto [first, last] = geometry_.y.inside(y);
        for (std::size_t ky = first; ky < last; ++ky) {
            const Word* in = work.words(in_) +
                             (geometry_.y.start(y) + ky * geometry_.y.dilation - geometry_.y.padding) * in_.width * in_words();
            for (std::size_t x = 0; x < in_.width; ++x)
                append(in + x * in_words(), lines + ky * words, (geometry_.x.padding + x) * channels);
        }
        for (std::size_t x = 0; x < geometry_.x.count; ++x)
            for (std::size_t ky = first; ky < last; ++ky)
                for (std::size_t i = 0; i < runs; ++i)
                    or_bits(lines + ky * words, (geometry_.x.start(x) + i * geometry_.x.dilation) * channels, run_bits,
                            rows + x * row_words_, (ky * geometry_.x.kernel + i) * channels);
    }

    // Ors the words of one pixel, whose tail bits are 0, into a line at bit `at`.
    void append(const Word* pixel, Word* line, std::size_t at) const {
        line += at / kWordBits;
        for (std::size_t i = 0; i < in_words(); ++i) {
            line[i] |= pixel[i] << at % kWordBits;
            // The tail of the last word may have no place in the line, nor any bits.
            if (const Word rest = pixel[i] >> 1 >> (kWordBits - 1 - at % kWordBits)) line[i + 1] |= rest;
        }
    }

    // How pixels lie in the operand: without gaps because units do not split them, padded to words, or gathered for each
    // output pixel where padding would leave much of each word empty.
    enum class Layout { close, padded, gathered };

    Layout layout_;
    std::size_t segment_taps_ = 0, segment_bits_ = 0;  // of each of the operand's segments; bits with what fills its last step
    std::size_t pixel_bits_ = 0, row_words_ = 0, block_bytes_ = 0, operand_bytes_ = 0;
    AlignedBytes weights_;
    std::vector<std::uint32_t> pixels_;  // the output pixels that are worked on: all, or those of every second row
    std::vector<Word> nothing_;          // a row of zeros
    Taps taps_;
    Borders borders_;
    std::vector<std::int32_t> base_;
};

}  // namespace

Made make_binary_conv(const Reader& reader) { return std::make_unique<BinaryConvolution>(reader); }

}  // namespace rbnn
