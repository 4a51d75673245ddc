#include "report/digest.hpp"

#include <xxhash.h>

namespace moelane::tools {

std::uint64_t digest_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  return bytes == 0 ? seed : XXH3_64bits_withSeed(data, bytes, seed);
}

}  // namespace moelane::tools
