#pragma once

#include <cstddef>

namespace moelane::detail {

// What can be reserved here at most: free memory and swap, or the container's limit. SIZE_MAX when nobody
// says.
std::size_t memory_at_most();

// Refuses, with Error(transport), `ranks` heaps of which `committed` bytes together are reserved at once,
// when there is not that much memory: an error now and not the system's killer later.
void check_memory(std::size_t ranks, std::size_t committed);

}  // namespace moelane::detail
