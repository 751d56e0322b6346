#include "base/aligned_memory.h"

#include <atomic>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/threads.h"

// Its sanitizer watches the ends of what is allocated one by one.
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
    madvise(pages.get(), all, MADV_HUGEPAGE);  // a wish: where it is refused, pages are small as ever
#endif
    return pages;
}

// Small pieces share a page.  The last one stays: a training step makes the same pieces again and again.
std::shared_ptr<std::uint8_t> take(std::size_t bytes) {
    if (bytes > kPage / 2) return whole_pages(bytes);
    const std::lock_guard<std::recursive_mutex> lock(shared_lock());
    static auto& page = *new std::shared_ptr<std::uint8_t>;  // never destroyed: threads may outlive the end of the program
    static std::size_t used = kPage;
    if (page.use_count() == 1) {  // all pieces are free, and what their owners did with them is done
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
