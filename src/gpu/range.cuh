#pragma once

#include <cstdint>

namespace moelane::gpu {

// What of `n` block `block` of `blocks` does.
struct Range {
  std::int32_t begin, end;  // [begin, end)
  __device__ std::int32_t size() const { return end - begin; }
};
__device__ inline Range slice_of(std::int32_t n, std::uint32_t blocks, std::uint32_t block) {
  const std::uint32_t each = static_cast<std::uint32_t>(n) / blocks,
                      more = static_cast<std::uint32_t>(n) - each * blocks;
  const std::uint32_t begin = each * block + (block < more ? block : more);
  return {static_cast<std::int32_t>(begin), static_cast<std::int32_t>(begin + each + (block < more ? 1 : 0))};
}

}  // namespace moelane::gpu
