// Which kernels run: the first of the preferred order that this machine supports, or the one that is asked for.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/invalid.h"
#include "simd/kernels.h"

namespace rbnn {

// All kernels compiled for this architecture, best first.
const std::vector<const Kernels*>& all_kernels();

// A name that no kernels have, or that of kernels that exist but not for this machine.
struct WrongKernels : Invalid {
    WrongKernels(const std::string& sentence, std::string name, bool exist)
        : Invalid(sentence), name(std::move(name)), exist(exist) {}
    std::string name;
    bool exist;
};

// By name; "" is what the environment's RBNN_KERNELS says, else the best one.  Throws WrongKernels.
const Kernels& find_kernels(const std::string& asked = "");

}  // namespace rbnn
