// What the memory gives, for comparison: all threads reading together.
#pragma once
#include <cstddef>

namespace forerun {

// Bytes per second over `nbytes` of memory in huge pages, the best of the turns that fit into `seconds` (at least two).
double probe(size_t nbytes, double seconds);

}  // namespace forerun
