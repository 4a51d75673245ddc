#pragma once

#include <cstdint>
#include <cuda/atomic>

// Words that GPUs and the host share.
namespace moelane::gpu {

using Word = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;

// Makes this thread's writes, and those it has come to know of (over a barrier, say), visible to every GPU
// and the host before its later stores.
__device__ inline void system_fence() {
  cuda::atomic_thread_fence(cuda::memory_order_acq_rel, cuda::thread_scope_system);
}

}  // namespace moelane::gpu
