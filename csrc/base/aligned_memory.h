// Memory that starts at a cache line, in huge pages if the system has them.  A network reads its weights and writes its
// activations sequentially, and with small pages it would need a new address translation every 4 KB.
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
    std::shared_ptr<std::uint8_t> data_;  // owns a share of the page; moved, never shared by two objects
};

}  // namespace rbnn
