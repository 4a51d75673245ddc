#pragma once

#include "gpu/kernels.cuh"
#include "gpu/launch.cuh"
#include "gpu/routing.cuh"
#include "gpu/tables.cuh"

// Dispatch, put way, the sender: writes one row for each token and destination rank into the destination's
// slot, its ids to every rank and its counts to those whose experts they count, then one signal; it never
// waits.
namespace moelane::gpu {

// By the threads of all blocks: the routing of the own share, to the peers' blocks for this source.
template <DeviceTransport T>
__device__ void send_routing(const SendArgs<T>& a, std::int32_t tokens) {
  const Lane<T>& lane = a.context.lane;
  const Shape& shape = lane.shape();
  const Share share = lane.own_share(tokens);
  const auto thread = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  const auto threads = static_cast<std::int32_t>(gridDim.x * kThreads);
  const TopkDivider divider = a.context.topk_divider;
#pragma unroll 1
  for (std::int32_t i = thread; i < share.count * shape.topk; i += threads) {
    const std::int32_t token = share.begin + divider.quotient(i), k = divider.remainder(i);
    const std::int32_t id = id_of(a.in, shape.experts, token, k);
    const float weight = shape.weights ? *reinterpret_cast<const float*>(a.in.weights.at(token, k)) : 0;
    int peer = shape.rank;
#pragma unroll 1
    for (int p = 0; p < shape.ranks; ++p) {
      peer = peer + 1 < shape.ranks ? peer + 1 : 0;
      std::byte* const to = lane.transport.peer_pointer(peer);
      reinterpret_cast<std::int32_t*>(to + lane.at.routing_ids(shape.rank))[i] = id;
      if (shape.weights) reinterpret_cast<float*>(to + lane.at.routing_weights(shape.rank))[i] = weight;
    }
  }
  if (thread < shape.ranks) {
    std::byte* const to = lane.transport.peer_pointer(thread);
    reinterpret_cast<RoutingHeader*>(to + lane.at.routing(shape.rank))->fingerprint =
        lane.placement.fingerprint;
  }
}

// By one block, to every rank: the rows of this share for each expert there, and for the rank.
template <DeviceTransport T, bool in_shared>
__device__ void send_counts(const SendArgs<T>& a, const Block<T>& block, const Tables<T, in_shared>& tables,
                            std::int32_t tokens) {
  const Lane<T>& lane = a.context.lane;
  const Shape& shape = lane.shape();
  const TopkDivider divider = a.context.topk_divider;
  const Share share = lane.own_share(tokens);
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  const auto id_at = [&](std::int32_t i) {
    return id_of(a.in, shape.experts, share.begin + divider.quotient(i), divider.remainder(i));
  };
#pragma unroll 1
  for (std::int32_t i = tid; i < share.count * divider.topk; i += kThreads) {
    const std::int32_t id = id_at(i);
    if (id < 0) continue;
    atomicAdd(&tables.total[id], 1);
    if (!shape.by_rank) continue;
    bool again = false;
    for (std::int32_t j = i - divider.remainder(i); j < i; ++j) {
      const std::int32_t other = id_at(j);
      again = again || (other >= 0 && tables.rank(other) == tables.rank(id));
    }
    if (!again) atomicAdd(&tables.total[shape.experts + tables.rank(id)], 1);
  }
  __syncthreads();
#pragma unroll 1
  for (std::int32_t i = tid; i < shape.experts + (shape.by_rank ? shape.ranks : 0); i += kThreads) {
    const int peer = i < shape.experts ? tables.rank(i) : i - shape.experts;
    lane.transport.relaxed_signal(peer, lane.at.counts(shape.rank) + static_cast<std::uint64_t>(i) * 8,
                                  pack(block.epoch + 1, static_cast<std::uint64_t>(tables.total[i])));
  }
}

template <DeviceTransport T, bool in_shared>
__global__ void __launch_bounds__(kThreads, 1) dispatch_send_kernel(const __grid_constant__ SendArgs<T> a) {
  extern __shared__ __align__(kBulkAlignment) std::int32_t shared[];
  __shared__ Batch batch;
  const Lane<T>& lane = a.context.lane;
  const Shape& shape = lane.shape();
  const Block<T> block(a.context);
  const bool dead = block.dead();
  const std::uint32_t where = Tables<T, in_shared>::first_where(a.context);
  const TopkDivider divider = a.context.topk_divider;
  const std::int32_t tokens = tokens_in(a.in).count, topk = divider.topk;
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  fetch_arguments(a);
  const Share share = lane.own_share(tokens);
  const Range own = entries_of(share, topk), own_batch = batch_of(own, own.begin, divider);
  BulkRows bulk(a.bulk, shared);
  const std::int32_t own_row = divider.quotient(own.begin) + BulkRows::warp();
  const bool begun = bulk.mine() && own_batch.size() > 0 && own_row * topk < own_batch.end;
  if (begun) bulk.load(a.in.x.at(own_row), a.in.scales.at(own_row));
  const Tables<T, in_shared> tables(a.context, shared, shape.experts + shape.ranks);
  Tables<T, in_shared>::copy_where(a.context, shared, where);
  const Range kept = slice_of(tokens * topk, gridDim.x, blockIdx.x);
  bool bad = false;
#pragma unroll 1
  for (std::int32_t i = kept.begin + tid; i < kept.end; i += kThreads) {
    keep(a.context, i, entry_of(a.in, divider.quotient(i), divider.remainder(i)), bad);
  }
  if (any_in_block(dead)) {
    if (begun) bulk.drop();
    return;
  }
  send_routing(a, tokens);
  if (blockIdx.x == gridDim.x - 1) send_counts(a, block, tables, tokens);

  std::uint64_t rows = 0;
#pragma unroll 1
  for (Range these = own_batch; these.size() > 0; these = batch_of(own, these.end, divider)) {
    const std::int32_t first_token = divider.quotient(these.begin), first = first_token * topk;
    const std::int32_t n = divider.quotient(these.end - first + topk - 1) * topk;  // of whole tokens
    if (these.begin > own.begin) __syncthreads();
#pragma unroll 1
    for (std::int32_t i = tid; i < n; i += kThreads) {
      const std::int32_t id =
          id_of(a.in, shape.experts, first_token + divider.quotient(i), divider.remainder(i));
      batch.key[i] = id < 0 ? -1 : tables.rank(id);
    }
    __syncthreads();
#pragma unroll 1
    for (std::int32_t i = tid; i < n; i += kThreads) {
      batch.to[i] = batch.scales_to[i] = nullptr;
      if (first + i < these.begin || first + i >= these.end || batch.key[i] < 0) continue;
      bool again = false;
#pragma unroll 1
      for (std::int32_t j = i - divider.remainder(i); j < i; ++j)
        again = again || batch.key[j] == batch.key[i];
      if (again) continue;
      ++rows;
      batch.to[i] = lane.transport.peer_pointer(batch.key[i]) +
                    lane.at.slot(shape.rank, first_token + divider.quotient(i) - share.begin);
      batch.scales_to[i] = batch.to[i] + shape.scale_offset();
    }
    __syncthreads();
    move_rows<2>(
        bulk, begun && these.begin == own.begin, a.width, divider.quotient(n), topk,
        {batch.to, shape.row_bytes}, [&](std::int32_t row) { return a.in.x.at(first_token + row); }, a.scales,
        batch.scales_to, [&](std::int32_t row) { return a.in.scales.at(first_token + row); });
  }
  if (block.last_and_signal(lane.at.signal(Signal::dispatch, shape.rank),
                            pack(block.epoch + 1, dispatch_payload(WireWay::put, tokens))) &&
      tid == 0) {
    report_bad_input(block, a.in);
  }
  block.end(rows * static_cast<std::uint64_t>(shape.slot_bytes()));
}

template <DeviceTransport T>
void launch_dispatch_send(const SendArgs<T>& args, const Launch& launch) {
  if (args.context.scratch == nullptr) {
    run<dispatch_send_kernel<T, true>>(args, launch);
  } else {
    run<dispatch_send_kernel<T, false>>(args, launch);
  }
}

}  // namespace moelane::gpu
