// In builds with AddressSanitizer, an access to a gap of the arena or to a buffer that is not in use is an error.  In
// other builds this does nothing.
#pragma once
#include <cstddef>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RBNN_POISON 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define RBNN_POISON 1
#endif
#if defined(RBNN_POISON)
#include <sanitizer/asan_interface.h>
#endif

namespace rbnn {

// A place in the arena, and the first and last operation during which it is in use.
struct Alive {
    std::size_t offset, bytes, first, last;
};

#if defined(RBNN_POISON)
constexpr std::size_t kGap = 256;  // bytes between places

class ArenaGuard {
public:
    ArenaGuard(const std::vector<Alive>& places, std::byte* arena, std::size_t bytes)
        : places_(places), arena_(arena), bytes_(bytes) {
        at(0);
    }
    ~ArenaGuard() { ASAN_UNPOISON_MEMORY_REGION(arena_, bytes_); }
    ArenaGuard(const ArenaGuard&) = delete;

    // Operation i is about to run.
    void at(std::size_t i) {
        ASAN_POISON_MEMORY_REGION(arena_, bytes_);
        for (const Alive& place : places_)
            if (place.first <= i && i <= place.last) ASAN_UNPOISON_MEMORY_REGION(arena_ + place.offset, place.bytes);
    }

private:
    const std::vector<Alive>& places_;
    std::byte* arena_;
    std::size_t bytes_;
};
#else
constexpr std::size_t kGap = 0;

struct ArenaGuard {
    ArenaGuard(const std::vector<Alive>&, std::byte*, std::size_t) {}
    void at(std::size_t) {}
};
#endif

}  // namespace rbnn
