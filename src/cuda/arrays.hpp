#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "cuda/check.hpp"

namespace moelane::gpu {

// Arrays that are freed with their owner.
struct CardFree {
  void operator()(void* memory) const { cudaFree(memory); }
};
struct PinnedFree {
  void operator()(void* memory) const { cudaFreeHost(memory); }
};
template <class T>
using CardArray = std::unique_ptr<T[], CardFree>;
template <class T>
using PinnedArray = std::unique_ptr<T[], PinnedFree>;

template <class T>
CardArray<T> card_array(std::size_t n) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, n * sizeof(T)), "allocate memory of a card");
  CardArray<T> array(static_cast<T*>(memory));
  clear(memory, n * sizeof(T));
  return array;
}

// Zeroed host memory that kernels write.
template <class T>
PinnedArray<T> pinned_array(std::size_t n) {
  static_assert(std::is_trivially_copyable_v<T>);
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, n * sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable),
        "allocate host memory for a card");
  __builtin_memset(memory, 0, n * sizeof(T));
  return PinnedArray<T>(static_cast<T*>(memory));
}

}  // namespace moelane::gpu
