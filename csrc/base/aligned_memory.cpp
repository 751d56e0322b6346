#include "base/aligned_memory.h"

#include <atomic>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/threads.h"

// AddressSanitizer watches the ends of each allocation, so under it nothing shares an allocation.
#if defined(__SANITIZE_ADDRESS__)
#define RBNN_ONE_BY_ONE
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RBNN_ONE_BY_ONE
#endif
#endif

namespace rbnn {
namespace {

template <std::size_t kAt>
std::shared_ptr<std::uint8_t> allocate(std::size_t bytes) {
    return {static_cast<std::uint8_t*>(::operator new(bytes, std::align_val_t{kAt})),
            [](std::uint8_t* data) { ::operator delete(data, std::align_val_t{kAt}); }};
}

#if defined(RBNN_ONE_BY_ONE)
std::shared_ptr<std::uint8_t> take(std::size_t bytes) { return allocate<kAlignment>(bytes); }
#else
constexpr std::size_t kPage = std::size_t{1} << 21;

std::shared_ptr<std::uint8_t> whole_pages(std::size_t bytes) {
    const std::size_t all = (bytes + kPage - 1) / kPage * kPage;
    std::shared_ptr<std::uint8_t> pages = allocate<kPage>(all);
#if defined(__linux__)
    madvise(pages.get(), all, MADV_HUGEPAGE);  // a hint: if the system refuses it, pages have their usual size
#endif
    return pages;
}

// Small pieces share a page.  The last page is kept, because a training step allocates the same pieces repeatedly.
std::shared_ptr<std::uint8_t> take(std::size_t bytes) {
    if (bytes > kPage / 2) return whole_pages(bytes);
    const std::lock_guard<std::recursive_mutex> lock(shared_lock());
    static auto& page = *new std::shared_ptr<std::uint8_t>;  // never destroyed: threads may outlive static destructors
    static std::size_t used = kPage;
    if (page.use_count() == 1) {  // all pieces are free; the fence orders their owners' accesses before the next ones
        std::atomic_thread_fence(std::memory_order_acquire);
        used = 0;
    }
    if (used + bytes > kPage) page = whole_pages(kPage), used = 0;
    used += bytes;
    return {page, page.get() + used - bytes};
}
#endif

}  // namespace

AlignedBytes::AlignedBytes(std::size_t size) : data_(take(aligned(size) + kAlignment)) {}

}  // namespace rbnn
