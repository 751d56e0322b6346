#include "base/freed_memory.h"

#if defined(__GLIBC__) || defined(__gnu_linux__)
#include <malloc.h>
#endif

namespace rbnn {

bool keep_freed_memory() {
#if defined(M_MMAP_THRESHOLD) && defined(M_TRIM_THRESHOLD)
    constexpr int kLargest = 1 << 30, kLargestOfOld = 1 << 25;  // older versions of glibc refuse more than 32 MiB
    const bool mapped = mallopt(M_MMAP_THRESHOLD, kLargest) == 1 || mallopt(M_MMAP_THRESHOLD, kLargestOfOld) == 1;
    return mapped && mallopt(M_TRIM_THRESHOLD, -1) == 1;
#else
    return false;
#endif
}

}  // namespace rbnn
