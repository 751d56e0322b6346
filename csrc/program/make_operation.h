// Makes an operation from its description in a file, which it checks.
#pragma once
#include "program/reader.h"

namespace rbnn {

// Throws Invalid, with the operation's name, if the description is wrong.
Made make_operation(const Spec& spec, const std::vector<Buffer>& buffers, const Kernels& kernels, Kept& kept);

}  // namespace rbnn
