#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
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

// Clears memory of the current card without waiting for anything else that it does: that may wait for the
// caller.
inline void clear(void* memory, std::size_t bytes) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  cudaError_t result = cudaMemsetAsync(memory, 0, bytes, stream);
  if (result == cudaSuccess) result = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  check(result, "clear memory of a card");
}

}  // namespace moelane::gpu
