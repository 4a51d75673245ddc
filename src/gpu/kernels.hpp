#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

#include "cuda/check.hpp"
#include "gpu/bulk.cuh"
#include "gpu/rows.cuh"

// The kernels of the six calls, and what each is given. Every rank launches its own; none needs to be
// launched together with another or to have the card to itself.
namespace moelane::gpu {

struct Launch {
  int card, blocks;
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
  Bulk bulk;
};
struct SendArgs {
  Job job;
  Input in;
  Width by;
  Scales scales;
  Bulk bulk;
};
struct ReceiveArgs {
  Job job;
  Output out;
  Width by;
  Scales scales;
  Bulk bulk;
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

// Allows a kernel all the shared memory that the selected card has for it.
void allow_shared_memory(const void* kernel);

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

}  // namespace moelane::gpu
