#include "base/bits.h"

#include <algorithm>

namespace rbnn {

void pack_rows(const float* values, std::size_t rows, std::size_t n, Word* out) {
    for (std::size_t row = 0; row < rows; ++row, values += n)
        for (std::size_t first = 0; first < n; first += kWordBits) {
            const std::size_t count = std::min(kWordBits, n - first);
            Word word = 0;
            for (std::size_t i = 0; i < count; ++i) word |= static_cast<Word>(values[first + i] > 0.0f) << i;
            *out++ = word;
        }
}

void unpack_rows(const Word* words, std::size_t rows, std::size_t n, float* out) {
    for (std::size_t row = 0; row < rows; ++row, words += words_for(n))
        for (std::size_t i = 0; i < n; ++i) *out++ = (words[i / kWordBits] >> i % kWordBits & 1) != 0 ? 1.0f : -1.0f;
}

}  // namespace rbnn
