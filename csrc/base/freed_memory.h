// What happens to freed memory.
#pragma once

namespace rbnn {

// Keeps freed memory in the process.  Otherwise the system would take it back, and would map and clear every page again
// at the next allocation; a training step allocates and frees the same hundreds of megabytes repeatedly.  Returns
// whether the C library has such a switch.
bool keep_freed_memory();

}  // namespace rbnn
