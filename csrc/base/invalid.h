// The exception for invalid requests.  Its message is a sentence for the user.
#pragma once
#include <stdexcept>

namespace rbnn {

struct Invalid : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void require(bool condition, const char* otherwise) {
    if (!condition) throw Invalid(otherwise);
}

}  // namespace rbnn
