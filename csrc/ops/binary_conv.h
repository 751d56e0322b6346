// Binary convolution of bits with weights of bits.  A binary linear layer is a 1×1 kernel on one pixel.
//
// Padded taps are zero words in the operand, so the kernels never branch:  acc = base − 2·(popcount over all taps).
// `base` has one row of numbers for each kind of border (`border_base`).
#pragma once
#include <vector>

#include "base/aligned_memory.h"
#include "ops/geometry.h"
#include "ops/operation.h"

namespace rbnn {

class BinaryConvolution {
public:
    // `weight` has the shape (groups, outputs, kernel rows, kernel columns, bytes of a tap), and bits beyond the
    // channels are 0.  `channels` and `outputs` are those of one group.
    BinaryConvolution(const Kernels& kernels, const Geometry& geometry, std::size_t channels, std::size_t outputs,
                      const std::uint8_t* weight, bool zero_padding, Kept& kept, std::size_t groups = 1);

    // The size of the scratch buffer of a run.
    std::size_t scratch_bytes() const { return scratch_bytes_; }
    // `in` has words_for(channels) words per pixel, with the channels of one group.
    void run(const Word* in, std::uint8_t* scratch, const Finish& finish, int threads, Call& call,
             std::size_t group = 0) const;

private:
    // How pixels are stored in the operand: without gaps, if they are whole units; padded to words; or gathered for
    // each output pixel, if padding would leave much of each word empty.
    enum class Layout { close, padded, gathered };

    std::size_t words() const { return words_for(channels_); }
    // The size of this many bits in the operand.
    std::size_t bytes(std::size_t bits) const { return bits * kernels_.operand_bytes / kWordBits; }
    // The number of words in a padded line of pixels without gaps, plus one for or_bits.
    std::size_t line_words() const { return words_for(geometry_.x.padded() * channels_) + 1; }
    std::size_t tap_bit(std::size_t tap) const;
    // The count of numbers in `base_` for one group.
    std::size_t base_of_group() const { return borders_.kinds.size() * words_for(outputs_) * kBlockChannels; }

    std::vector<Word> order_weights(const std::uint8_t* weight) const;
    void tile(const std::vector<Word>& rows, std::size_t group);
    void find_taps();
    void make_base(const std::vector<Word>& rows, std::size_t group);
    std::int64_t count_tap(const Word* row, std::size_t tap) const;
    void copy_rows(const Word* in, std::uint8_t* operand, int threads) const;
    void gather(const Word* in, std::uint8_t* operand, Call& call) const;
    void gather_line(const Word* in, std::size_t y, Word* lines, Word* rows) const;
    void append(const Word* pixel, Word* line, std::size_t at) const;

    const Kernels& kernels_;
    Geometry geometry_;
    std::size_t channels_, outputs_;
    Layout layout_;
    std::size_t segment_taps_ = 0, segment_bits_ = 0;  // of one segment of the operand; bits are padded to whole steps
    std::size_t pixel_bits_ = 0, row_words_ = 0, block_bytes_ = 0, operand_bytes_ = 0, scratch_bytes_ = 0;
    AlignedBytes weights_;
    std::vector<std::uint32_t> pixels_;  // the output pixels that the kernel is called for: all, or every second row
    std::vector<Word> nothing_;          // a row of zeros
    Taps taps_;
    Borders borders_;
    std::vector<std::int32_t> base_;  // groups × kinds of border × outputs in whole blocks
};

}  // namespace rbnn
