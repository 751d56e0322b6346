#include "ops/binary_conv.h"

#include <algorithm>
#include <cstring>

#include "ops/operations.h"

namespace rbnn {
namespace {

// Ors `count` bits of `from`, starting at bit `first`, into `to` at bit `at`.  Both arrays have one word more than
// their bits need.
void or_bits(const Word* from, std::size_t first, std::size_t count, Word* to, std::size_t at) {
    while (count > 0) {
        const std::size_t right = first % kWordBits, left = at % kWordBits, n = std::min(count, kWordBits);
        // Two shifts, because a shift by 64 is undefined.
        Word word = from[first / kWordBits] >> right | from[first / kWordBits + 1] << 1 << (kWordBits - 1 - right);
        word &= ~Word{0} >> (kWordBits - n);
        to[at / kWordBits] |= word << left;
        to[at / kWordBits + 1] |= word >> 1 >> (kWordBits - 1 - left);
        first += n, at += n, count -= n;
    }
}

}  // namespace

BinaryConvolution::BinaryConvolution(const Kernels& kernels, const Geometry& geometry, std::size_t channels,
                                     std::size_t outputs, const std::uint8_t* weight, bool zero_padding, Kept& kept,
                                     std::size_t groups)
    : kernels_(kernels), geometry_(geometry), channels_(channels), outputs_(outputs) {
    const std::size_t taps = geometry_.y.kernel * geometry_.x.kernel;
    const std::size_t apart = taps * words(), together = words_for(taps * channels_);
    if (channels_ % kernels_.unit_bits == 0)
        layout_ = Layout::close;
    else
        layout_ = together < apart ? Layout::gathered : Layout::padded;
    pixel_bits_ = layout_ == Layout::padded ? words() * kWordBits : channels_;
    segment_taps_ = layout_ == Layout::gathered ? taps : geometry_.taps_side_by_side();
    const std::size_t steps = (segment_taps_ * pixel_bits_ + kernels_.step_bits - 1) / kernels_.step_bits;
    segment_bits_ = steps * kernels_.step_bits;
    row_words_ = words_for(taps / segment_taps_ * segment_bits_);
    const std::size_t width = words_for(outputs_) * kBlockChannels;
    kept.weights(groups * width, apart, sizeof(Word));
    block_bytes_ = kernels_.tiled_bytes(row_words_);
    weights_ = AlignedBytes(groups * words_for(outputs_) * block_bytes_);
    find_taps();
    if (zero_padding)
        borders_ = find_borders(geometry_);
    else  // taps in the padding are −1 and need no correction
        borders_ = {{{{0, geometry_.y.kernel}, {0, geometry_.x.kernel}}},
                    std::vector<std::uint32_t>(geometry_.positions(), 0)};
    kept.borders(groups * borders_.kinds.size(), width);
    base_.resize(groups * borders_.kinds.size() * width, 0);
    for (std::size_t group = 0; group < groups; ++group) {
        const std::vector<Word> rows = order_weights(weight + group * outputs_ * taps * ((channels_ + 7) / 8));
        tile(rows, group);
        make_base(rows, group);
    }
}

void BinaryConvolution::run(const Word* in, std::uint8_t* scratch, const Finish& finish, int threads, Call& call,
                            std::size_t group) const {
    if (layout_ == Layout::gathered)
        gather(in, scratch, call);
    else
        copy_rows(in, scratch, threads);
    const BinaryConv job{scratch, taps_.offsets.data(), pixels_.data(), geometry_.x.count, geometry_.positions(),
                         borders_.of_pixel.data(), taps_.segments.data(), taps_.segments.size(),
                         weights_.data() + group * words_for(outputs_) * block_bytes_, block_bytes_,
                         base_.data() + group * base_of_group(), finish};
    // Parts of about 4 million multiply-adds are large enough for a thread and small enough to balance the load.
    const std::size_t macs = row_words_ * kWordBits * kBlockChannels * kernels_.rows_together;
    over_blocks(
        kernels_, outputs_, pixels_.size(), (std::size_t{1} << 22) / macs, threads, call,
        [&](std::size_t block, std::size_t first, std::size_t last) { kernels_.binary_conv(job, block, first, last); });
}

// The first bit of a tap in a row of weights.
std::size_t BinaryConvolution::tap_bit(std::size_t tap) const {
    return tap / segment_taps_ * segment_bits_ + tap % segment_taps_ * pixel_bits_;
}

// One row of words per output channel, with the taps in the order of the operand.
std::vector<Word> BinaryConvolution::order_weights(const std::uint8_t* weight) const {
    const std::size_t bytes = (channels_ + 7) / 8, taps = geometry_.y.kernel * geometry_.x.kernel;
    std::vector<Word> rows(outputs_ * row_words_ + 1, 0), tap(words() + 1);
    for (std::size_t o = 0; o < outputs_; ++o)
        for (std::size_t t = 0; t < taps; ++t, weight += bytes) {
            std::fill(tap.begin(), tap.end(), 0);
            for (std::size_t i = 0; i < bytes; ++i) tap[i / 8] |= static_cast<Word>(weight[i]) << (i % 8 * 8);
            or_bits(tap.data(), 0, channels_, rows.data() + o * row_words_, tap_bit(t));
        }
    return rows;
}

void BinaryConvolution::tile(const std::vector<Word>& rows, std::size_t group) {
    std::uint8_t* weights = weights_.data() + group * words_for(outputs_) * block_bytes_;
    for (std::size_t block = 0; block < words_for(outputs_); ++block)
        kernels_.tile_weights(rows.data() + block * kBlockChannels * row_words_,
                              std::min(kBlockChannels, outputs_ - block * kBlockChannels), row_words_,
                              weights + block * block_bytes_);
}

// Finds the taps of each output pixel in the operand.
void BinaryConvolution::find_taps() {
    const std::size_t pixel_bytes = bytes(pixel_bits_), row_bytes = geometry_.x.padded() * pixel_bytes;
    for (std::size_t y = 0; y < geometry_.y.count; y += kernels_.rows_together)
        for (std::size_t x = 0; x < geometry_.x.count; ++x)
            pixels_.push_back(static_cast<std::uint32_t>(y * geometry_.x.count + x));
    std::size_t total = geometry_.y.padded() * row_bytes;
    if (layout_ == Layout::gathered) {
        const std::size_t each = bytes(row_words_ * kWordBits);
        total = pixels_.size() * each;
        for (std::size_t i = 0; i < pixels_.size(); ++i) taps_.offsets.push_back(static_cast<std::uint32_t>(i * each));
        taps_.segments = {{0, static_cast<std::uint32_t>(each)}};
    } else {
        taps_ = lay_out(geometry_, row_bytes, pixel_bytes, pixel_bytes);
        std::transform(pixels_.begin(), pixels_.end(), taps_.offsets.begin(),
                       [&](std::uint32_t pixel) { return taps_.offsets[pixel]; });  // in place: i ≤ pixels_[i]
        taps_.offsets.resize(pixels_.size());
    }
    nothing_.assign(std::max(geometry_.x.side * words(), geometry_.x.count * row_words_) + 1, 0);
    require(total < (std::size_t{1} << 31), "the input is too large");
    // `expand` writes whole words, and the last one may extend beyond the end.  `gather` keeps its rows after the
    // operand.
    operand_bytes_ = aligned(total + bytes(kWordBits));
    scratch_bytes_ = operand_bytes_;
    if (layout_ == Layout::gathered)
        scratch_bytes_ += (geometry_.y.kernel * line_words() + 2 * geometry_.x.count * row_words_ + 1) * sizeof(Word);
}

void BinaryConvolution::make_base(const std::vector<Word>& rows, std::size_t group) {
    const std::size_t width = words_for(outputs_) * kBlockChannels;
    std::int32_t* base = base_.data() + group * base_of_group();
    TapSums<std::int64_t> set(geometry_.y.kernel, geometry_.x.kernel);  // the number of bits that are 1
    for (std::size_t o = 0; o < outputs_; ++o) {
        set.set([&](std::size_t tap) { return count_tap(rows.data() + o * row_words_, tap); });
        for (std::size_t kind = 0; kind < borders_.kinds.size(); ++kind)
            base[kind * width + o] = border_base(set, borders_.kinds[kind], channels_);
    }
}

std::int64_t BinaryConvolution::count_tap(const Word* row, std::size_t tap) const {
    std::int64_t count = 0;
    for (std::size_t bit = tap_bit(tap), rest = channels_; rest > 0;) {  // the bits of one word at a time
        const std::size_t n = std::min(rest, kWordBits - bit % kWordBits);
        count += __builtin_popcountll(row[bit / kWordBits] >> bit % kWordBits << (kWordBits - n));
        bit += n, rest -= n;
    }
    return count;
}

// Copies the image into the operand, with a margin of zeros.
void BinaryConvolution::copy_rows(const Word* in, std::uint8_t* operand, int threads) const {
    const std::size_t pixel = bytes(pixel_bits_), row = geometry_.x.padded() * pixel,
                      margin = geometry_.x.padding * pixel;
    const auto line = [&](std::size_t y) {  // of the padded image
        const bool inside = y >= geometry_.y.padding && y < geometry_.y.padding + geometry_.y.side;
        return inside ? in + (y - geometry_.y.padding) * geometry_.x.side * words() : nothing_.data();
    };
    // `expand` writes whole words.  If pixels are not whole words, the end of a row overwrites the start of the next
    // one, so the rows are written in order by one thread.
    parallel_for(geometry_.y.padded(), 16, pixel_bits_ % kWordBits == 0 ? threads : 1,
                 [&](std::size_t begin, std::size_t end) {
                     for (std::size_t y = begin; y < end; ++y) {
                         std::uint8_t* to = operand + y * row;
                         std::memset(to, 0, margin);
                         kernels_.expand(line(y), line(y + geometry_.y.stride), geometry_.x.side, words(), pixel,
                                         to + margin);
                         std::memset(to + row - margin, 0, margin);
                     }
                 });
}

// Writes a row for each output pixel: its taps, one after the other, without gaps.
void BinaryConvolution::gather(const Word* in, std::uint8_t* operand, Call& call) const {
    const std::size_t each = bytes(row_words_ * kWordBits), row = geometry_.x.count * row_words_;
    auto* lines = reinterpret_cast<Word*>(operand + operand_bytes_);
    Word *upper = lines + geometry_.y.kernel * line_words(), *lower = upper + row;
    for (std::size_t y = 0; y < geometry_.y.count && !call.stop();
         y += kernels_.rows_together, operand += geometry_.x.count * each) {
        // The lower row is written last: the extra word that or_bits needs after `upper` is the first word of `lower`.
        std::fill(upper, upper + 2 * row + 1, 0);
        gather_line(in, y, lines, upper);
        if (kernels_.rows_together == 2 && y + 1 < geometry_.y.count) gather_line(in, y + 1, lines, lower);
        kernels_.expand(upper, lower, geometry_.x.count, row_words_, each, operand);
    }
}

// Gathers line y of output pixels.  The gaps in its input lines are removed first, so that adjacent taps are copied
// together.
void BinaryConvolution::gather_line(const Word* in, std::size_t y, Word* lines, Word* rows) const {
    const std::size_t line = line_words(), together = geometry_.taps_side_by_side();
    std::fill(lines, lines + geometry_.y.kernel * line, 0);
    const auto [first, last] = geometry_.y.inside(y);
    for (std::size_t ky = first; ky < last; ++ky) {
        const std::size_t row = geometry_.y.start(y) + ky * geometry_.y.dilation - geometry_.y.padding;
        const Word* pixel = in + row * geometry_.x.side * words();
        for (std::size_t x = 0; x < geometry_.x.side; ++x, pixel += words())
            append(pixel, lines + ky * line, (geometry_.x.padding + x) * channels_);
    }
    for (std::size_t x = 0; x < geometry_.x.count; ++x)
        for (std::size_t ky = first; ky < last; ++ky)
            for (std::size_t kx = 0; kx < geometry_.x.kernel; kx += together)
                or_bits(lines + ky * line, (geometry_.x.start(x) + kx * geometry_.x.dilation) * channels_,
                        together * channels_, rows + x * row_words_, (ky * geometry_.x.kernel + kx) * channels_);
}

// Ors the words of one pixel, whose tail bits are 0, into a line at bit `at`.
void BinaryConvolution::append(const Word* pixel, Word* line, std::size_t at) const {
    line += at / kWordBits;
    for (std::size_t i = 0; i < words(); ++i) {
        line[i] |= pixel[i] << at % kWordBits;
        // The line may have no room for the tail of the last word, but then the tail has no bits.
        if (const Word rest = pixel[i] >> 1 >> (kWordBits - 1 - at % kWordBits)) line[i + 1] |= rest;
    }
}

namespace {

class BinaryConvOperation final : public Convolution {
public:
    BinaryConvOperation(const ConvolutionParameters& p, const std::uint8_t* weight, bool zero_padding)
        : Convolution(p),
          convolution_(p.kernels, p.geometry, p.in.channels, p.finish.channels, weight, zero_padding, p.kept) {
        scratch_bytes = convolution_.scratch_bytes();
    }
    void run(const Workspace& work) const override {
        auto* scratch = reinterpret_cast<std::uint8_t*>(work.arena + scratch_offset);
        convolution_.run(work.words(in_), scratch, finish_.at(work), work.threads, work.call);
    }

private:
    BinaryConvolution convolution_;
};

}  // namespace

Made make_binary_conv(const ConvolutionParameters& p, const std::uint8_t* weight, bool zero_padding) {
    return std::make_unique<BinaryConvOperation>(p, weight, zero_padding);
}

}  // namespace rbnn
