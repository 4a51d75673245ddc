#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpu/check.hpp"
#include "gpu/rows.cuh"

// The kernels of the six calls, and what each is given. Every rank launches its own; none needs to be
// launched together with another or to have the card to itself.
namespace moelane::gpu {

// The receiver looks the entries of as many tokens as this up once and keeps them in shared memory, behind
// its tables; of more, each time.
inline constexpr std::int32_t kStaged = 16384;

struct Launch {
  int blocks;
  std::size_t shared_bytes;
  cudaStream_t stream;
};

struct DirectArgs {
  Job job;
  Input in;
  Output out;
  std::uint64_t print;
  Width by;  // rows
  Scales scales;
};
struct SendArgs {
  Job job;
  Input in;
  Width by;
  Scales scales;
};
struct ReceiveArgs {
  Job job;
  Output out;
  Width by;
  Scales scales;
  bool partial_sums;
};
struct AnswerArgs {
  Job job;
  ExpertRows rows;
  DType type;
  std::int64_t hidden;
  bool partial_sums;
  std::uint64_t print;
  Width by;
};
struct CombineArgs {
  Job job;
  ExpertRows rows;  // direct: of every rank, at the same place of its heap
  CombineOutput out;
  std::uint64_t print;
  bool direct;
  std::int32_t tokens;  // of the dispatch; -1: the card knows
  bool aligned;         // rows and outputs may be read and written by 16 bytes
};

void launch_dispatch_direct(const DirectArgs& args, const Launch& launch);
void launch_dispatch_send(const SendArgs& args, const Launch& launch);
void launch_dispatch_receive(const ReceiveArgs& args, const Launch& launch);
void launch_combine_send(const AnswerArgs& args, const Launch& launch);
void launch_combine(const CombineArgs& args,
                    const Launch& launch);  // direct, and the second half of the put way

// Calls launch.operator()<ranked, in_shared>() for the kernel of this layout and of where its tables lie.
template <class Launcher>
void with_tables(Layout layout, const Job& job, const Launcher& launch) {
  const bool ranked = layout == Layout::ranked;
  if (job.scratch == nullptr) {
    ranked ? launch.template operator()<true, true>() : launch.template operator()<false, true>();
  } else {
    ranked ? launch.template operator()<true, false>() : launch.template operator()<false, false>();
  }
}

template <class Args>
void run(void (*kernel)(Args), const Args& args, const Launch& launch, int threads = kThreads) {
  if (launch.shared_bytes > 16384) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(launch.shared_bytes)),
          "give a kernel its shared memory");
  }
  kernel<<<static_cast<unsigned>(launch.blocks), static_cast<unsigned>(threads), launch.shared_bytes,
           launch.stream>>>(args);
  check(cudaGetLastError(), "start a kernel");
}

}  // namespace moelane::gpu
