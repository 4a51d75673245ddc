#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "moelane/error.hpp"

namespace moelane::gpu {

// Throws Error(transport) when a call of the CUDA runtime failed; `doing` says what for.
inline void check(cudaError_t result, const char* doing) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // the next call starts afresh
  throw Error(ErrorKind::transport,
              std::string("CUDA could not ") + doing + ": " + cudaGetErrorString(result));
}

}  // namespace moelane::gpu
