#pragma once
#include <nanobind/nanobind.h>

namespace rbnn {

// Adds the training kernels to the module.
void bind_training(nanobind::module_& m);
// The part of them that convolves signs.
void bind_sign_conv(nanobind::module_& m);

}  // namespace rbnn
