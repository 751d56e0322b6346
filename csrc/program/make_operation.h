// An operation from what a file says of it, checked.
#pragma once
#include "program/reader.h"

namespace rbnn {

// Throws Invalid with the operation's name unless it can be.
Made make_operation(const Spec& spec, const std::vector<Buffer>& buffers, const Kernels& kernels, Kept& kept);

}  // namespace rbnn
