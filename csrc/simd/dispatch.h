// Which kernels run: the best ones that this machine supports, or those that the user chose.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/invalid.h"
#include "simd/kernels.h"

namespace rbnn {

// All kernels compiled for this architecture, best first.
const std::vector<const Kernels*>& all_kernels();

// The name is unknown, or this machine does not support the kernels with this name.
struct WrongKernels : Invalid {
    WrongKernels(const std::string& sentence, std::string name, bool exist)
        : Invalid(sentence), name(std::move(name)), exist(exist) {}
    std::string name;
    bool exist;
};

// The kernels with this name.  "" means the value of the environment variable RBNN_KERNELS, or the best kernels if it
// is not set.  Throws WrongKernels.
const Kernels& find_kernels(const std::string& asked = "");

}  // namespace rbnn
