// A small pool of threads that sleep between calls.
#pragma once
#include <cstddef>
#include <functional>
#include <mutex>

namespace rbnn {

// Calls body(begin, end) on disjoint parts of [0, count), at most `threads` at a time, and returns when all are done.
// A part has at least `grain` items.  A call from inside a body, or while another thread uses the pool, runs in the
// calling thread alone.  If bodies throw, one of their exceptions is thrown after all parts are done.
void parallel_for(std::size_t count, std::size_t grain, int threads,
                  const std::function<void(std::size_t, std::size_t)>& body);

// How many of `threads` to use.  More threads than cores do not help, and a system may refuse to start them.  Up to
// eight are always used, so that a machine with one core runs the same code as one with several.
int useful_threads(int threads);

// Protects what calls share: free arenas and pages.  It is held only briefly.  No other thread holds it while the
// process forks, so a child finds it free and what it protects consistent.
std::recursive_mutex& shared_lock();

}  // namespace rbnn
