#pragma once

#include <cstdint>

#include "gpu/range.cuh"

// Numbering: the place of an entry among those of its key, in the order of the entries. A block counts the
// entries before its slice (in any order), then numbers its slice, a warp at a time. Entries are (token, k)
// pairs, keys are experts or ranks; a negative key is not counted.
namespace moelane::gpu {

inline constexpr int kBatch = 1024;  // entries that a block numbers and moves at a time

// For the whole block. key(i) may be asked by any thread.
template <class Key>
__device__ void count(Range entries, std::int32_t* counters, const Key& key) {
#pragma unroll 1
  for (std::int32_t i = entries.begin + static_cast<std::int32_t>(threadIdx.x); i < entries.end;
       i += static_cast<std::int32_t>(blockDim.x)) {
    const std::int32_t k = key(i);
    if (k >= 0) atomicAdd(&counters[k], 1);
  }
}

__device__ inline void clear(std::int32_t* words, std::int32_t n) {
#pragma unroll 1
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n;
       i += static_cast<std::int32_t>(blockDim.x)) {
    words[i] = 0;
  }
}

// For one warp: numbers[i] of the keys[i], from cursor[key] on, which it moves on.
__device__ inline void number(const std::int32_t* keys, std::int32_t n, std::int32_t* cursor,
                              std::int32_t* numbers) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll 1
  for (std::int32_t base = 0; base < n; base += 32) {
    const std::int32_t i = base + static_cast<std::int32_t>(lane);
    const std::int32_t key = i < n ? keys[i] : -1;
    const unsigned same = __match_any_sync(~0U, key);
    const int leader = __ffs(static_cast<int>(same)) - 1;
    std::int32_t first = 0;
    if (key >= 0 && static_cast<int>(lane) == leader) {
      first = cursor[key];
      cursor[key] = first + __popc(same);
    }
    first = __shfl_sync(~0U, first, leader);
    if (i < n) numbers[i] = key < 0 ? -1 : first + __popc(same & ((1U << lane) - 1));
    __syncwarp();
  }
}

// For one warp: the sum of the values of this and all lower lanes.
__device__ inline std::int32_t warp_sum_up_to(std::int32_t value) {
  for (int step = 1; step < 32; step *= 2) {
    const std::int32_t below = __shfl_up_sync(~0U, value, step);
    if (static_cast<int>(threadIdx.x % 32) >= step) value += below;
  }
  return value;
}

// For one warp: calls visit(i, sum) for each i of the range with the sum of the values before it, value(i)
// being its own; returns the sum of all.
template <class Value, class Visit>
__device__ std::int32_t prefix(Range range, const Value& value, const Visit& visit) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  std::int32_t carry = 0;
#pragma unroll 1
  for (std::int32_t base = range.begin; base < range.end; base += 32) {
    const std::int32_t i = base + lane;
    const std::int32_t own = i < range.end ? value(i) : 0;
    const std::int32_t sum = warp_sum_up_to(own);
    if (i < range.end) visit(i, carry + sum - own);
    carry += __shfl_sync(~0U, sum, 31);
  }
  return carry;
}

// Adds 1 and returns what was there, by however many threads of a warp come here, in one atomic operation.
__device__ inline std::int32_t add_one(std::int32_t* counter) {
  const unsigned here = __activemask();
  const unsigned below = here & ((1U << threadIdx.x % 32) - 1);
  std::int32_t first = 0;
  if (below == 0) first = atomicAdd(counter, __popc(here));
  return __shfl_sync(here, first, __ffs(static_cast<int>(here)) - 1) + __popc(below);
}

}  // namespace moelane::gpu
