#include "gpu/kernels.hpp"
#include "gpu/routing.cuh"

// Dispatch, put way, the sender: writes one row for each token and destination rank into the destination's
// slot, then its ids to every rank, then one signal; it never waits.
namespace moelane::gpu {
namespace {

// By the threads of all blocks: the routing of the own share, to the peers' blocks for this source.
__device__ void send_routing(const SendArgs& a, std::int32_t tokens) {
  const Lane<PeerHandle>& lane = a.job.lane;
  const Shape& shape = lane.shape();
  const Share share = lane.own_share(tokens);
  const auto thread = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  const auto threads = static_cast<std::int32_t>(gridDim.x * kThreads);
  const ByTopk by = a.job.by_topk;
#pragma unroll 1
  for (std::int32_t i = thread; i < share.count * shape.topk; i += threads) {
    const std::int32_t token = share.begin + by.quotient(i), k = by.remainder(i);
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

__global__ void __launch_bounds__(kThreads, 1) dispatch_send_kernel(const __grid_constant__ SendArgs a) {
  __shared__ Batch batch;
  const Lane<PeerHandle>& lane = a.job.lane;
  const Shape& shape = lane.shape();
  const Block block(a.job);
  const bool dead = block.dead();
  const ByTopk by = a.job.by_topk;
  const std::int32_t tokens = tokens_in(a.in).count, topk = by.topk;
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  fetch_arguments(a);
  const Share share = lane.own_share(tokens);
  const Range own = entries_of(share, topk);
  const auto read_ids = [&](Range these) {  // of whole tokens
    const std::int32_t first_token = by.quotient(these.begin);
    const std::int32_t n = by.quotient(these.end - first_token * topk + topk - 1) * topk;
#pragma unroll 1
    for (std::int32_t i = tid; i < n; i += kThreads) {
      batch.id[i] = id_of(a.in, shape.experts, first_token + by.quotient(i), by.remainder(i));
    }
    return n;
  };
  const Range kept = slice_of(tokens * topk, gridDim.x, blockIdx.x);
#pragma unroll 1
  for (std::int32_t i = kept.begin + tid; i < kept.end; i += kThreads) {
    keep(a.job, i, entry_of(a.in, by.quotient(i), by.remainder(i)));
  }
  if (!Block::fine(dead)) return;
  send_routing(a, tokens);

  std::uint64_t rows = 0;
#pragma unroll 1
  for (Range these = batch_of(own, own.begin, by); these.size() > 0; these = batch_of(own, these.end, by)) {
    const std::int32_t first_token = by.quotient(these.begin), first = first_token * topk;
    if (these.begin > own.begin) __syncthreads();
    const std::int32_t n = read_ids(these);
    __syncthreads();
    const auto rank_at = [&](std::int32_t i) {
      return batch.id[i] < 0 ? -1 : rank_of(__ldg(a.job.where + batch.id[i]));
    };
#pragma unroll 1
    for (std::int32_t i = tid; i < n; i += kThreads) batch.key[i] = rank_at(i);
    __syncthreads();
#pragma unroll 1
    for (std::int32_t i = tid; i < n; i += kThreads) {
      batch.to[i] = batch.scales_to[i] = nullptr;
      if (first + i < these.begin || first + i >= these.end || batch.key[i] < 0) continue;
      bool again = false;
#pragma unroll 1
      for (std::int32_t j = i - by.remainder(i); j < i; ++j) again = again || batch.key[j] == batch.key[i];
      if (again) continue;
      ++rows;
      batch.to[i] = lane.transport.peer_pointer(batch.key[i]) +
                    lane.at.slot(shape.rank, first_token + by.quotient(i) - share.begin);
      batch.scales_to[i] = batch.to[i] + shape.scale_offset();
    }
    __syncthreads();
    copy_rows<2>(
        a.by, by.quotient(n), topk, {batch.to, shape.row_bytes},
        [&](std::int32_t row) { return a.in.x.at(first_token + row); }, a.scales, batch.scales_to,
        [&](std::int32_t row) { return a.in.scales.at(first_token + row); });
  }
  if (block.last_and_signal(lane.at.signal(Signal::dispatch, shape.rank),
                            pack(block.epoch + 1, dispatch_payload(WireWay::put, tokens))) &&
      tid == 0) {
    tell_bad_input(block, a.in);
  }
  block.end(rows * static_cast<std::uint64_t>(shape.slot_bytes()));
}

}  // namespace

void launch_dispatch_send(const SendArgs& args, const Launch& launch) {
  run(dispatch_send_kernel, args, launch);
}

}  // namespace moelane::gpu
