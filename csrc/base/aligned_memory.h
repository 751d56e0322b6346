// Memory that starts at a cache line, and lies in large pages where the system has them: a network reads its weights and
// writes its pictures in a row, and in small pages it would have to look up an address every 4 KB.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace rbnn {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class AlignedBytes {
public:
    AlignedBytes() = default;
    explicit AlignedBytes(std::size_t size);
    AlignedBytes(AlignedBytes&&) noexcept = default;
    AlignedBytes& operator=(AlignedBytes&&) noexcept = default;
    std::uint8_t* data() { return data_.get(); }
    const std::uint8_t* data() const { return data_.get(); }

private:
    std::shared_ptr<std::uint8_t> data_;  // of the page; moved, never shared by two
};

}  // namespace rbnn
