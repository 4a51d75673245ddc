#include <cuda_runtime.h>

#include <algorithm>

#include "cuda/check.hpp"
#include "cuda/device.hpp"

// The floors' kernels: nothing but the reads and writes of rows, as fast as the memory takes them. A warp
// moves a part of a row, so that all multiprocessors are busy with few rows too: kLines 16-byte words a lane
// where there are parts enough for every warp, fewer otherwise. Rows and pointers lie on the card; a null
// pointer is no row.
namespace moelane::gpu {
namespace {

constexpr int kThreads = 1024, kWarp = 32;
constexpr unsigned kAll = 0xffffffffU;

struct Moves {
  const void* const* from;
  void* const* to;
  std::int64_t rows;
  int words, copies;  // 16-byte words of a row
};

// Calls part(row, first word) for each part that falls to this warp; all its lanes together.
template <int kLines, class Part>
__device__ void for_each_part(const Moves& moves, const Part& part) {
  constexpr int kWords = kLines * kWarp;
  const int parts = (moves.words + kWords - 1) / kWords;
  const std::int64_t all = moves.rows * parts;
  const std::int64_t warps = std::int64_t{gridDim.x} * (kThreads / kWarp);
  // Neighbouring parts go to different multiprocessors.
  for (std::int64_t i = threadIdx.x / kWarp * std::int64_t{gridDim.x} + blockIdx.x; i < all; i += warps) {
    part(i / parts, static_cast<int>(i % parts) * kWords);
  }
}

// Lane l holds the pointer of copy `first` + l; null past the last.
template <class Pointer>
__device__ Pointer pointer_of_lane(Pointer const* pointers, const Moves& moves, std::int64_t row, int first) {
  const int copy = first + static_cast<int>(threadIdx.x) % kWarp;
  return copy < moves.copies ? pointers[row * moves.copies + copy] : nullptr;
}

template <class Pointer>
__device__ Pointer pointer_from(Pointer mine, int lane) {
  return reinterpret_cast<Pointer>(__shfl_sync(kAll, reinterpret_cast<unsigned long long>(mine), lane));
}

template <int kLines>
__global__ void __launch_bounds__(kThreads, 1) copy_kernel(const Moves moves) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for_each_part<kLines>(moves, [&](std::int64_t row, int first) {
    const auto* from = static_cast<const int4*>(moves.from[row]);
    if (from == nullptr) return;
    int4 word[kLines];
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const int at = first + i * kWarp + lane;
      if (at < moves.words) word[i] = __ldcs(from + at);
    }
    for (int group = 0; group < moves.copies; group += kWarp) {
      void* const mine = pointer_of_lane(moves.to, moves, row, group);
      for (int c = 0; c < min(moves.copies - group, kWarp); ++c) {
        auto* to = static_cast<int4*>(pointer_from(mine, c));
        if (to == nullptr) continue;
#pragma unroll
        for (int i = 0; i < kLines; ++i) {
          const int at = first + i * kWarp + lane;
          if (at < moves.words) to[at] = word[i];
        }
      }
    }
  });
}

// Reads of several rows are under way together; what is written depends on all of them.
template <int kLines>
__global__ void __launch_bounds__(kThreads, 1) gather_kernel(const Moves moves) {
  constexpr int kTogether = 4 / kLines;  // 64 KiB under way on a multiprocessor
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for_each_part<kLines>(moves, [&](std::int64_t row, int first) {
    auto* to = static_cast<int4*>(moves.to[row]);
    if (to == nullptr) return;
    int4 sum[kLines] = {};
    for (int group = 0; group < moves.copies; group += kWarp) {
      const void* const mine = pointer_of_lane(moves.from, moves, row, group);
#pragma unroll 1  // more would spill
      for (int c = 0; c < min(moves.copies - group, kWarp); c += kTogether) {
        int4 word[kTogether][kLines];
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          const auto* from = static_cast<const int4*>(pointer_from(mine, c + j));
#pragma unroll
          for (int i = 0; i < kLines; ++i) {
            const int at = first + i * kWarp + lane;
            word[j][i] = from != nullptr && at < moves.words ? __ldcs(from + at) : int4{};
          }
        }
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
#pragma unroll
          for (int i = 0; i < kLines; ++i) {
            sum[i].x ^= word[j][i].x;
            sum[i].y ^= word[j][i].y;
            sum[i].z ^= word[j][i].z;
            sum[i].w ^= word[j][i].w;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const int at = first + i * kWarp + lane;
      if (at < moves.words) to[at] = sum[i];
    }
  });
}

struct Copy {
  template <int kLines>
  static constexpr auto kernel = copy_kernel<kLines>;
};
struct Gather {
  template <int kLines>
  static constexpr auto kernel = gather_kernel<kLines>;
};

template <class Kind>
void start(const Moves& moves, int multiprocessors, Stream stream) {
  if (moves.rows == 0 || moves.words == 0) return;
  const auto parts = [&](int lines) {
    return moves.rows * ((moves.words + lines * kWarp - 1) / (lines * kWarp));
  };
  const std::int64_t warps = std::int64_t{multiprocessors} * (kThreads / kWarp);
  const auto kernel = parts(4) >= warps   ? Kind::template kernel<4>
                      : parts(2) >= warps ? Kind::template kernel<2>
                                          : Kind::template kernel<1>;
  kernel<<<multiprocessors, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(moves);
  check(cudaGetLastError(), "start a floor's kernel");
}

}  // namespace

void copy_rows(const void* const* from, void* const* to, std::int64_t rows, int copies, std::int64_t bytes,
               int multiprocessors, Stream stream) {
  start<Copy>({from, to, rows, static_cast<int>(bytes / 16), copies}, multiprocessors, stream);
}

void gather_rows(const void* const* from, void* const* to, std::int64_t rows, int copies, std::int64_t bytes,
                 int multiprocessors, Stream stream) {
  start<Gather>({from, to, rows, static_cast<int>(bytes / 16), copies}, multiprocessors, stream);
}

}  // namespace moelane::gpu
