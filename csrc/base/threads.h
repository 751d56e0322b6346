// A small pool of threads that sleep between calls.
#pragma once
#include <cstddef>
#include <functional>
#include <mutex>

namespace rbnn {

// Calls body(begin, end) on disjoint parts of [0, count), at most `threads` at a time, and returns when all are done.
// Parts hold at least `grain` items.  A call from inside a body, or while another thread uses the pool, runs in place.
void parallel_for(std::size_t count, std::size_t grain, int threads,
                  const std::function<void(std::size_t, std::size_t)>& body);

// How many of `threads` to use: more than there are cores help nobody, and a system may refuse to start them.  A few are always
// used, so that one core runs what several would.
int useful_threads(int threads);

// Held for moments, by whoever changes what calls share: free arenas, pages.  No other thread holds it while the process forks,
// so that the child finds it free and what it guards whole.
std::recursive_mutex& shared_lock();

}  // namespace rbnn
