#pragma once

#include <cstddef>
#include <cstdint>

namespace moelane::tools {

// xxHash of `bytes` bytes; of a whole when `seed` is the digest of what comes before.
std::uint64_t digest_bytes(const void* data, std::size_t bytes, std::uint64_t seed);

}  // namespace moelane::tools
