// Which kernels run: the first of the preferred order that this machine supports, or the one that is asked for.
#pragma once
#include <string>
#include <vector>

#include "simd/kernels.h"

namespace rbnn {

// All kernels compiled for this architecture, best first.
const std::vector<const Kernels*>& all_kernels();

// By name; "" is what the environment's RBNN_KERNELS says, else the best one.  Throws Invalid if there is none of that name or this machine cannot run it.
const Kernels& find_kernels(const std::string& asked = "");

}  // namespace rbnn
