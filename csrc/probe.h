// What the memory gives, for comparison: all threads reading together, in the way that is fastest here.
#pragma once
#include <cstddef>

namespace forerun {

// Bytes per second over `nbytes` of memory in huge pages: the fastest pass of those that fit into `seconds`, but every
// way is tried once.
double probe(size_t nbytes, double seconds);

}  // namespace forerun
