#pragma once

#include <cstddef>
#include <cstdint>

// All PTX of the library: what neither C++ nor nvcc's own functions can say. Nothing outside of this file
// uses asm, and nothing here knows what it is used for. Addresses are pointers and results are values, so
// that the same names can be given bodies of plain C++.
namespace moelane::gpu::ptx {

// Whether the architecture that is compiled for has the bulk copy engine and its barriers (sm_90 and later).
// Without it the functions that are about either do nothing, and nothing may call them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kBulkCopies = true;
#else
inline constexpr bool kBulkCopies = false;
#endif

// Nanoseconds of the clock that all GPUs of a machine share. Every call reads it.
__device__ inline std::uint64_t clock_ns() {
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// A hint that `address` will be used: brings its line and its translation near.
__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Loads a word here, although nothing uses it.
__device__ inline void touch(const std::uint32_t* address) { asm volatile("" ::"r"(*address)); }

// Where something lies in the block's own shared memory, as the engine and its barriers take it: one register
// where a pointer takes two. Bytes can be added to it.
using SharedAddress = std::uint32_t;
__device__ inline SharedAddress shared_address(const void* in_shared_memory) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(in_shared_memory));
}

// A barrier in shared memory that completes a phase when one thread has come and all bytes are there that it
// expects. By one thread; the engine knows of it when this returns.
__device__ inline void barrier_init(SharedAddress barrier) {
  if constexpr (kBulkCopies) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
}
// The one thread has come, and `bytes` are on their way.
__device__ inline void barrier_expect(SharedAddress barrier, std::int32_t bytes) {
  if constexpr (kBulkCopies) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
  }
}
// Whether the phase of this parity (0 for the first, then 1, 0, ...) is complete; waits for a moment.
__device__ inline bool barrier_complete(SharedAddress barrier, std::uint32_t parity) {
  std::uint32_t complete = 1;
  if constexpr (kBulkCopies) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(complete)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
  return complete != 0;
}

// What this thread knows to be written, by whomever, is what the engine reads from now on.
__device__ inline void bulk_fence() {
  if constexpr (kBulkCopies) asm volatile("fence.proxy.async;" ::: "memory");
}
// Copies of multiples of 16 bytes between addresses that are multiples of 16: to shared memory, counted by a
// barrier that expects them; and from there, after barrier_complete().
__device__ inline void bulk_load(SharedAddress to, const std::byte* from, std::int32_t bytes,
                                 SharedAddress barrier) {
  if constexpr (kBulkCopies) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
  }
}
__device__ inline void bulk_store(std::byte* to, SharedAddress from, std::int32_t bytes) {
  if constexpr (kBulkCopies) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
  }
}
// Of the stores that this thread has asked for: closes the group; then waits until all groups are read from
// shared memory, or until they are written.
__device__ inline void bulk_close() {
  if constexpr (kBulkCopies) asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void bulk_await_read() {
  if constexpr (kBulkCopies) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ inline void bulk_await_written() {
  if constexpr (kBulkCopies) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace moelane::gpu::ptx
