#pragma once

#include <cstdint>

#include "gpu/block.cuh"
#include "gpu/numbers.cuh"
#include "gpu/shared_memory.hpp"

namespace moelane::gpu {

// What a block looks up and counts all the time, in shared memory, or in the card's where that is too small:
// where experts are, running numbers, totals.
template <DeviceTransport T, bool in_shared>
struct Tables {
  const std::uint32_t* where;
  std::int32_t *cursor, *total;

  __device__ Tables(const CallContext<T>& context, std::int32_t* shared, std::int32_t keys) {
    where = in_shared ? reinterpret_cast<const std::uint32_t*>(shared) : context.where;
    cursor = in_shared ? shared + context.lane.shape().experts
                       : context.scratch +
                             static_cast<std::int64_t>(blockIdx.x) * counter_words(context.lane.shape());
    total = cursor + keys;
    clear(cursor, 2 * keys);
  }
  // The placement comes in two halves, with other loads between: this thread's first word, then the copy. For
  // the whole block; ends without a barrier.
  __device__ static std::uint32_t first_where(const CallContext<T>& context) {
    return static_cast<std::int32_t>(threadIdx.x) < context.lane.shape().experts
               ? __ldg(context.where + threadIdx.x)
               : 0;
  }
  __device__ static void copy_where(const CallContext<T>& context, std::int32_t* shared,
                                    std::uint32_t first) {
    if (!in_shared) return;
    const std::int32_t experts = context.lane.shape().experts;
    const auto tid = static_cast<std::int32_t>(threadIdx.x);
    if (tid < experts) shared[tid] = static_cast<std::int32_t>(first);
#pragma unroll 1
    for (std::int32_t e = tid + kThreads; e < experts; e += kThreads)
      shared[e] = static_cast<std::int32_t>(context.where[e]);
  }

  __device__ std::int32_t rank(std::int32_t expert) const { return rank_of(where[expert]); }
  __device__ std::int32_t local(std::int32_t expert) const { return local_of(where[expert]); }
};

}  // namespace moelane::gpu
