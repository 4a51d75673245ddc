#pragma once

#include "gpu/far.cuh"
#include "gpu/kernels.cuh"
#include "gpu/routing.cuh"
#include "gpu/tables.cuh"

namespace moelane::gpu {

// What the blocks of a sender do, in the order of the kernel (dispatch_send.cuh).
template <DeviceTransport T, bool in_shared>
struct Sender {
  const SendArgs<T>& a;
  const Lane<T>& lane;
  const Block<T>& block;
  const Tables<T, in_shared>& tables;
  TopkDivider divider;
  std::int32_t tokens;
  Share share;  // of the tokens, this rank's

  __device__ std::int32_t id_at(std::int32_t token, std::int32_t k) const {
    return id_of(a.in, lane.shape().experts, token, k);
  }

  // By the threads of all blocks: the group's routing, for combine. Whether this thread has seen a bad id.
  __device__ void keep_routing(bool& bad) const {
    const Range kept = slice_of(tokens * divider.topk, gridDim.x, blockIdx.x);
#pragma unroll 1
    for (std::int32_t i = kept.begin + static_cast<std::int32_t>(threadIdx.x); i < kept.end; i += kThreads) {
      keep(a.context, i, entry_of(a.in, divider.quotient(i), divider.remainder(i)), bad);
    }
  }

  // By the threads of all blocks: the routing of the own share, to the near peers' blocks for this source.
  // From the own rank's it goes to far peers, with the signal.
  __device__ void send_routing() const {
    const Shape& shape = lane.shape();
    const auto thread = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
    const auto threads = static_cast<std::int32_t>(gridDim.x * kThreads);
#pragma unroll 1
    for (std::int32_t i = thread; i < share.count * shape.topk; i += threads) {
      const std::int32_t token = share.begin + divider.quotient(i), k = divider.remainder(i);
      const std::int32_t id = id_at(token, k);
      const float weight = shape.weights ? *reinterpret_cast<const float*>(a.in.weights.at(token, k)) : 0;
      int peer = shape.rank;
#pragma unroll 1
      for (int p = 0; p < shape.ranks; ++p) {
        peer = peer + 1 < shape.ranks ? peer + 1 : 0;
        if (is_far(lane, peer)) continue;
        std::byte* const to = lane.transport.peer_pointer(peer);
        reinterpret_cast<std::int32_t*>(to + lane.at.routing_ids(shape.rank))[i] = id;
        if (shape.weights) reinterpret_cast<float*>(to + lane.at.routing_weights(shape.rank))[i] = weight;
      }
    }
    if (thread < shape.ranks && !is_far(lane, thread)) {
      std::byte* const to = lane.transport.peer_pointer(thread);
      reinterpret_cast<RoutingHeader*>(to + lane.at.routing(shape.rank))->fingerprint =
          lane.placement.fingerprint;
    }
  }

  // By one block: counts the rows of this share for each expert, and (where anybody asks) for each rank.
  __device__ void count_rows() const {
    const auto id_of_entry = [&](std::int32_t i) {
      return id_at(share.begin + divider.quotient(i), divider.remainder(i));
    };
#pragma unroll 1
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < share.count * divider.topk;
         i += kThreads) {
      const std::int32_t id = id_of_entry(i);
      if (id < 0) continue;
      atomicAdd(&tables.total[id], 1);
      if (!kHasFar<T> && !lane.shape().by_rank) continue;
      bool again = false;
      for (std::int32_t j = i - divider.remainder(i); j < i; ++j) {
        const std::int32_t other = id_of_entry(j);
        again = again || (other >= 0 && tables.rank(other) == tables.rank(id));
      }
      if (!again) atomicAdd(&tables.total[lane.shape().experts + tables.rank(id)], 1);
    }
  }
  // By the same block, after a barrier: each count to the rank whose rows it counts.
  __device__ void send_counts() const {
    const Shape& shape = lane.shape();
#pragma unroll 1
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x);
         i < shape.experts + (kHasFar<T> || shape.by_rank ? shape.ranks : 0); i += kThreads) {
      const int peer = i < shape.experts ? tables.rank(i) : i - shape.experts;
      const std::uint64_t word = pack(block.epoch + 1, static_cast<std::uint64_t>(tables.total[i]));
      std::int32_t at = i;
      if constexpr (kHasFar<T>) {
        at = far_count_word(lane, peer,
                            i < shape.experts ? tables.local(i) : lane.placement.local_experts(peer));
        lane.template own<std::uint64_t>(lane.at.own_counts())[at] = word;
      }
      if (is_far(lane, peer)) continue;
      lane.transport.relaxed_signal(peer, lane.at.counts(shape.rank) + static_cast<std::uint64_t>(at) * 8,
                                    word);
    }
    if constexpr (kHasFar<T>) {
      __syncthreads();
      const Warp warp;
#pragma unroll 1
      for (int peer = warp.in_block(); peer < shape.ranks; peer += kThreads / Warp::kThreads) {
        if (!is_far(lane, peer)) continue;
        const auto first = static_cast<std::uint64_t>(far_count_word(lane, peer, 0)) * 8;
        const auto bytes = static_cast<std::size_t>(lane.placement.local_experts(peer) + 1) * 8;
        lane.transport.put_signal(
            warp, peer, lane.at.counts(shape.rank) + first, lane.heap + lane.at.own_counts() + first, bytes,
            lane.at.signal(Signal::counts, shape.rank), pack(block.epoch + 1, 0), SignalOp::set);
      }
    }
  }

  // All threads: the destination ranks of the n entries that follow token `first_token`.
  __device__ void find_ranks(Batch& batch, std::int32_t first_token, std::int32_t n) const {
#pragma unroll 1
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n; i += kThreads) {
      const std::int32_t id = id_at(first_token + divider.quotient(i), divider.remainder(i));
      batch.key[i] = id < 0 ? -1 : tables.rank(id);
    }
  }
  __device__ int slot_of(std::int32_t first_token, std::int32_t i) const {
    return first_token + divider.quotient(i) - share.begin;
  }
  // All threads, after a barrier: where the rows of the entries `these` go; to a rank only once. Where to a
  // far one, batch.id is 1, and the token's first of these goes to the stage. Returns this thread's rows.
  __device__ std::uint64_t find_slots(Batch& batch, Range these, std::int32_t first_token,
                                      std::int32_t n) const {
    const std::int32_t first = first_token * divider.topk;
    std::uint64_t rows = 0;
#pragma unroll 1
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n; i += kThreads) {
      batch.to[i] = batch.scales_to[i] = nullptr;
      if constexpr (kHasFar<T>) batch.id[i] = 0;
      if (first + i < these.begin || first + i >= these.end || batch.key[i] < 0) continue;
      bool again = false;
#pragma unroll 1
      for (std::int32_t j = i - divider.remainder(i); j < i; ++j)
        again = again || batch.key[j] == batch.key[i];
      if (again) continue;
      ++rows;
      if (is_far(lane, batch.key[i])) {
        batch.id[i] = 1;
        continue;
      }
      batch.to[i] = lane.transport.peer_pointer(batch.key[i]) +
                    lane.at.slot(lane.shape().rank, slot_of(first_token, i));
      batch.scales_to[i] = batch.to[i] + lane.shape().scale_offset();
    }
    if constexpr (kHasFar<T>) {
      __syncthreads();
      for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n; i += kThreads) {
        bool stages = batch.id[i] != 0;
        for (std::int32_t j = i - divider.remainder(i); stages && j < i; ++j) stages = batch.id[j] == 0;
        if (!stages) continue;
        batch.to[i] = lane.heap + lane.at.stage(slot_of(first_token, i));
        batch.scales_to[i] = batch.to[i] + lane.shape().scale_offset();
      }
    }
    return rows;
  }
  // All threads, after a barrier that follows the writing of these rows: sends those for far ranks.
  __device__ void send_far_rows(const Batch& batch, std::int32_t first_token, std::int32_t n) const {
    const Warp warp;
#pragma unroll 1
    for (std::int32_t i = warp.in_block(); i < n; i += kThreads / Warp::kThreads) {
      if (batch.id[i] == 0) continue;
      const int slot = slot_of(first_token, i);
      send_far_row(lane, warp, batch.key[i], lane.at.slot(lane.rank(), slot), lane.heap + lane.at.stage(slot),
                   lane.shape().slot_bytes(), Signal::rows);
    }
  }

  // All threads: the signal, by the last block; to far ranks with the routing. Whether this is that block.
  __device__ bool signal() const {
    const std::uint64_t at = lane.at.signal(Signal::dispatch, lane.rank());
    const std::uint64_t word = pack(block.epoch + 1, dispatch_payload(WireWay::put, tokens));
    if constexpr (!kHasFar<T>) {
      return block.last_and_signal(at, word);
    } else {
      if (!block.last()) return false;
      const Warp warp;
      const auto ids_bytes = static_cast<std::size_t>(share.count * divider.topk) * 4;
      const std::uint64_t routing = lane.at.routing(lane.rank());
      const std::size_t bytes =
          ids_bytes + (lane.shape().weights
                           ? static_cast<std::size_t>(lane.at.routing_weights(0) - lane.at.routing(0))
                           : sizeof(RoutingHeader));
#pragma unroll 1
      for (int peer = 0; threadIdx.x == 0 && peer < lane.shape().ranks; ++peer) {
        if (!is_far(lane, peer)) lane.transport.relaxed_signal(peer, at, word);
      }
      warp.sync();
#pragma unroll 1
      for (int peer = warp.in_block(); peer < lane.shape().ranks; peer += kThreads / Warp::kThreads) {
        if (is_far(lane, peer))
          lane.transport.put_signal(warp, peer, routing, lane.heap + routing, bytes, at, word, SignalOp::set);
      }
      return true;
    }
  }
};

}  // namespace moelane::gpu
