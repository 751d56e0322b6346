// Memory that starts at a cache line.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace rbnn {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class AlignedBytes {
public:
    AlignedBytes() = default;
    explicit AlignedBytes(std::size_t size)
        : data_(static_cast<std::uint8_t*>(::operator new(size + kAlignment, std::align_val_t{kAlignment}))) {}
    AlignedBytes(AlignedBytes&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
    AlignedBytes& operator=(AlignedBytes&& other) noexcept {
        std::swap(data_, other.data_);
        return *this;
    }
    ~AlignedBytes() {
        if (data_) ::operator delete(data_, std::align_val_t{kAlignment});
    }
    std::uint8_t* data() { return data_; }
    const std::uint8_t* data() const { return data_; }

private:
    std::uint8_t* data_ = nullptr;
};

}  // namespace rbnn
