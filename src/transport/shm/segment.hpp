#pragma once

#include <cstddef>
#include <memory>

#include "transport/shm/socket.hpp"

// The memory that the ranks share: an anonymous file (memfd), so no file system, not even /dev/shm, has to
// have room for it, and nothing is left of it when the last process is gone. All functions throw
// Error(transport) in words.
namespace moelane::detail::shm {

// `bytes` zeroed bytes, whose size nobody can change any more: a peer cannot pull the memory from under us.
Fd make_segment(std::size_t bytes);

// All of it, as shared memory, until the last owner lets go. Refuses a descriptor that is not what
// make_segment gives.
std::shared_ptr<std::byte> map_segment(const Fd& segment, std::size_t bytes);

// Gives memory to [offset, offset + bytes) now, or says that there is none.
void reserve(const Fd& segment, std::byte* base, std::size_t offset, std::size_t bytes);

}  // namespace moelane::detail::shm
