#pragma once

#include <cstddef>
#include <cstdint>

namespace moelane::gpu {

// The threads of a warp, as one who does something.
struct Warp {
  static constexpr int kThreads = 32;
  __device__ static int thread() { return static_cast<int>(threadIdx.x % kThreads); }
  __device__ static int in_block() { return static_cast<int>(threadIdx.x / kThreads); }
  __device__ static void sync() { __syncwarp(); }
};

// By a warp: copies bytes, 16 at a time where both addresses allow it.
__device__ inline void copy_bytes(Warp, std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t done = 0;
  if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % sizeof(uint4) == 0) {
    const std::size_t words = bytes / sizeof(uint4);
    for (std::size_t i = static_cast<std::size_t>(Warp::thread()); i < words; i += Warp::kThreads)
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    done = words * sizeof(uint4);
  }
  for (std::size_t i = done + static_cast<std::size_t>(Warp::thread()); i < bytes; i += Warp::kThreads)
    to[i] = from[i];
}

}  // namespace moelane::gpu
