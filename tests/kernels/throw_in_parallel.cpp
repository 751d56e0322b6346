// An exception in a part of a parallel loop reaches the caller, after which the pool works as before.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "base/threads.h"

int main(int, char** words) {
    const int threads = std::atoi(words[1]);
    for (int round = 0; round < 100; ++round) {
        bool caught = false;
        try {
            rbnn::parallel_for(64, 1, threads, [](std::size_t, std::size_t end) {
                if (end > 8) throw std::bad_alloc();
            });
        } catch (const std::bad_alloc&) {
            caught = true;
        }
        std::atomic<std::size_t> sum{0};
        rbnn::parallel_for(64, 1, threads, [&](std::size_t begin, std::size_t end) { sum += end - begin; });
        if (!caught || sum != 64) return 1;
    }
    std::puts("caught, and the pool still works");
    return 0;
}
