// Random shapes and values for the comparisons of kernels; the same in every run.
#pragma once
#include <cstddef>
#include <random>
#include <vector>

inline std::mt19937 random_numbers(1);

inline std::size_t any(std::size_t low, std::size_t high) {
    return std::uniform_int_distribution<std::size_t>(low, high)(random_numbers);
}

// Every tenth is exactly 0, where a sign must be −1.
inline std::vector<float> floats(std::size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = any(0, 9) == 0 ? 0.0f : normal(random_numbers);
    return values;
}
