// How the process deals with memory that was freed.
#pragma once

namespace rbnn {

// Freed memory stays with the process, to be used again without being asked for, and cleared, page by page.  A training
// step allocates and frees the same hundreds of megabytes again and again.  True where the C library has such a switch.
bool keep_freed_memory();

}  // namespace rbnn
