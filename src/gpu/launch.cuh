#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/check.hpp"
#include "gpu/kernels.cuh"

// How launchers start their kernels.
namespace moelane::gpu {

// Allows a kernel all the shared memory that the selected card has for it.
inline void allow_shared_memory(const void* kernel) {
  int card = 0, most = 0;
  cudaFuncAttributes attributes{};
  check(cudaGetDevice(&card), "tell which it is");
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, card),
        "tell its shared memory");
  check(cudaFuncGetAttributes(&attributes, kernel), "describe a kernel");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             most - static_cast<int>(attributes.sharedSizeBytes)),
        "give a kernel its shared memory");
}

template <auto kernel, class Args>
void run(const Args& args, const Launch& launch, int threads = kThreads) {
  static std::atomic<std::uint64_t> allowed{0};  // a bit for each card
  const std::uint64_t card = std::uint64_t{1} << (launch.card % 64);
  if ((allowed.load(std::memory_order_relaxed) & card) == 0) {
    allow_shared_memory(reinterpret_cast<const void*>(kernel));
    allowed.fetch_or(card, std::memory_order_relaxed);
  }
  kernel<<<static_cast<unsigned>(launch.blocks), static_cast<unsigned>(threads), launch.shared_bytes,
           launch.stream>>>(args);
  check(cudaGetLastError(), "start a kernel");
}

// Calls launch.operator()<ranked, in_shared>() for the kernel of this layout and of where its tables lie.
template <DeviceTransport T, class Launcher>
void with_tables(Layout layout, const CallContext<T>& context, const Launcher& launch) {
  const bool ranked = layout == Layout::ranked;
  if (context.scratch == nullptr) {
    ranked ? launch.template operator()<true, true>() : launch.template operator()<false, true>();
  } else {
    ranked ? launch.template operator()<true, false>() : launch.template operator()<false, false>();
  }
}

// Calls launch.operator()<type, n>() for the kernel that sums rows of `type`, by 16 bytes where they are
// `aligned`.
template <class Launcher>
void with_type(DType type, bool aligned, const Launcher& launch) {
  if (type == DType::bf16) {
    aligned ? launch.template operator()<DType::bf16, 8>() : launch.template operator()<DType::bf16, 1>();
  } else if (type == DType::fp16) {
    aligned ? launch.template operator()<DType::fp16, 8>() : launch.template operator()<DType::fp16, 1>();
  } else {
    aligned ? launch.template operator()<DType::fp32, 4>() : launch.template operator()<DType::fp32, 1>();
  }
}

}  // namespace moelane::gpu
