#pragma once

#include <cuda_runtime_api.h>

#include "gpu/bulk.cuh"
#include "gpu/rows.cuh"

// The kernels of the six calls, and what each is given. Every rank launches its own; none needs to be
// launched together with another or to have the card to itself. They are templates on the transport, each
// defined in a header of its own and instantiated once for each transport.
namespace moelane::gpu {

struct Launch {
  int card, blocks;
  std::size_t shared_bytes;
  cudaStream_t stream;
};

template <DeviceTransport T>
struct DirectArgs {
  CallContext<T> context;
  Input in;
  Output out;
  std::uint64_t print;
  Width width;  // of rows
  Scales scales;
  Bulk bulk;
};
template <DeviceTransport T>
struct SendArgs {
  CallContext<T> context;
  Input in;
  Width width;
  Scales scales;
  Bulk bulk;
};
template <DeviceTransport T>
struct ReceiveArgs {
  CallContext<T> context;
  Output out;
  Width width;
  Scales scales;
  Bulk bulk;
  bool partial_sums;
};
template <DeviceTransport T>
struct AnswerArgs {
  CallContext<T> context;
  ExpertRows rows;
  DType type;
  std::int64_t hidden;
  bool partial_sums;
  std::uint64_t print;
  Width width;
};
template <DeviceTransport T>
struct CombineArgs {
  CallContext<T> context;
  ExpertRows rows;  // direct: of every rank, at the same place of its heap
  CombineOutput out;
  std::uint64_t print;
  bool direct;
  std::int32_t tokens;  // of the dispatch; -1: the card knows
  bool aligned;         // rows and outputs may be read and written by 16 bytes
};

// The direct way: only where every peer's heap is addressable.
template <DeviceTransport T>
void launch_dispatch_direct(const DirectArgs<T>& args, const Launch& launch);
template <DeviceTransport T>
void launch_dispatch_send(const SendArgs<T>& args, const Launch& launch);
template <DeviceTransport T>
void launch_dispatch_receive(const ReceiveArgs<T>& args, const Launch& launch);
template <DeviceTransport T>
void launch_combine_send(const AnswerArgs<T>& args, const Launch& launch);
// Direct, and the second half of the put way.
template <DeviceTransport T>
void launch_combine(const CombineArgs<T>& args, const Launch& launch);

}  // namespace moelane::gpu
