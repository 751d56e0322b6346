#pragma once
#include <nanobind/nanobind.h>

namespace rbnn {

// Adds the training kernels to the module.
void bind_training(nanobind::module_& m);

}  // namespace rbnn
