#pragma once

#include "gpu/far.cuh"
#include "gpu/kernels.cuh"
#include "gpu/sum.cuh"
#include "protocol/combine_put.hpp"

// What the blocks do that send answers: which rows they send where, and what they say after an overflow
// (combine_send.cuh).
namespace moelane::gpu {

inline constexpr int kSendThreads = 512;  // fewer have more registers each, for more rows on their way

template <DeviceTransport T>
struct Answering {
  const AnswerArgs<T>& a;
  const Lane<T>& lane;

  // One entry of the list: a token of a source, and which of its k.
  struct Entry {
    int source;
    std::int32_t token, k;
    const std::int32_t* ids;  // of the token
  };
  __device__ Entry entry(std::int32_t i) const {
    const Shape& shape = lane.shape();
    const std::int32_t code = lane.template own<const std::int32_t>(lane.at.received())[i];
    const std::int32_t each = shape.share * shape.topk;
    Entry e{code / each, code % each / shape.topk, code % shape.topk, nullptr};
    e.ids = lane.template own<const std::int32_t>(lane.at.routing_ids(e.source)) + e.token * shape.topk;
    return e;
  }
  __device__ std::int32_t place(const Entry& e, std::int32_t k) const {
    return lane.template own<const std::int32_t>(lane.at.places(e.source))[e.token * lane.shape().topk + k];
  }
  // The rank at number `j` of the token's group; every rank begins with another one.
  __device__ int peer(const Entry& e, int j) const {
    const Shape& shape = lane.shape();
    return e.source / shape.tp * shape.tp + (shape.rank + j) % shape.tp;
  }
  // The answer's slot in each of their heaps.
  __device__ std::uint64_t slot(const Entry& e) const {
    const Shape& shape = lane.shape();
    const std::uint64_t word =
        *lane.template own<const std::uint64_t>(lane.at.signal(Signal::dispatch, e.source));
    const Share share = share_of(tokens_of(word), shape.tp, e.source % shape.tp);
    return lane.at.answer(share.begin + e.token, e.k);
  }
  // Partial sums: what expert k of the token adds here.
  __device__ Term term(const Entry& e, std::int32_t k) const {
    const std::int32_t here = local_on(lane.placement, e.ids[k], lane.rank());
    if (here < 0 || place(e, k) < 0) return {nullptr, 0};
    const auto* weights = lane.template own<const float>(lane.at.routing_weights(e.source));
    return {a.rows.at(here, place(e, k)), weights[e.token * lane.shape().topk + k]};
  }

  // What of the list this block answers, and how many rows at a time, of `most` for which it has memory.
  __device__ Range own_entries() const {
    std::uint32_t units = gridDim.x;
    if constexpr (kHasFar<T>) {
      if (lane.shape().staged) units = AnswerStage<T>(lane).units();
    }
    if (kHasFar<T> && blockIdx.x >= units) return {0, 0};
    return slice_of(lane.state().received, units, blockIdx.x);
  }
  __device__ std::int32_t rows_at_a_time(std::int32_t most) const {
    if constexpr (kHasFar<T>) {
      if (lane.shape().staged && AnswerStage<T>(lane).rows() < most) return AnswerStage<T>(lane).rows();
    }
    return most;
  }
  // All threads: where the rows [first, first + n) of the list are written, tp addresses each.
  __device__ void find_slots(std::int32_t first, std::int32_t n, std::byte** to) const {
    const std::int32_t tp = lane.shape().tp;
    const AnswerStage<T> stage(lane);
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n * tp; i += kSendThreads) {
      const Entry e = entry(first + i / tp);
      const int to_rank = peer(e, i % tp);
      to[i] = is_far(lane, to_rank) ? stage.row(i / tp) : lane.transport.peer_pointer(to_rank) + slot(e);
    }
  }
  // All threads, when these rows are written: sends those for far ranks. Ends with a barrier, after which
  // they may be written again.
  __device__ void send_far(std::int32_t first, std::int32_t n) const {
    __syncthreads();
    if constexpr (kHasFar<T>) {
      const Warp warp;
      const std::int32_t tp = lane.shape().tp;
      const AnswerStage<T> stage(lane);
      for (std::int32_t i = warp.in_block(); i < n * tp; i += kSendThreads / Warp::kThreads) {
        const Entry e = entry(first + i / tp);
        const int to_rank = peer(e, i % tp);
        if (!is_far(lane, to_rank)) continue;
        send_far_row(lane, warp, to_rank, slot(e), stage.row(i / tp), lane.shape().answer_bytes,
                     Signal::answers);
      }
      lane.transport.drain(warp);
      __syncthreads();
    }
  }
};

// All threads of the last block: for one group how many of its rows of every expert (by_rank: in all) are
// answered. `lost`: whether some are not.
template <DeviceTransport T>
__device__ void count_kept_rows(const AnswerArgs<T>& a, int group_first, std::int32_t* kept,
                                std::int32_t* lost) {
  const Lane<T>& lane = a.context.lane;
  const Shape& shape = lane.shape();
  for (int source = group_first; source < group_first + shape.tp; ++source) {
    const auto* ids = lane.template own<const std::int32_t>(lane.at.routing_ids(source));
    const auto* places = lane.template own<const std::int32_t>(lane.at.places(source));
    const std::uint64_t word =
        *lane.template own<const std::uint64_t>(lane.at.signal(Signal::dispatch, source));
    const Share share = share_of(tokens_of(word), shape.tp, source % shape.tp);
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < share.count * shape.topk;
         i += kSendThreads) {
      if (local_on(lane.placement, ids[i], lane.rank()) < 0) continue;
      // As count_kept() of the CPU: a partial sum is sent even if it is of no row.
      const bool answers =
          !shape.by_rank || new_rank(lane.placement, ids + i / shape.topk * shape.topk, i % shape.topk) >= 0;
      if (places[i] < 0 && (answers || a.partial_sums)) *lost = 1;
      if (answers && (places[i] >= 0 || a.partial_sums)) atomicAdd(&kept[shape.by_rank ? 0 : ids[i]], 1);
    }
  }
}

// All threads of the last block, after an overflow: to the ranks of each group what is kept of its rows, if
// not all is, and the signal.
template <DeviceTransport T>
__device__ void signal_with_counts(const Block<T>& block, const AnswerArgs<T>& a) {
  __shared__ std::int32_t lost;
  const Lane<T>& lane = a.context.lane;
  const Shape& shape = lane.shape();
  const std::uint64_t at = lane.at.signal(Signal::combine, shape.rank), to = lane.at.kept(shape.rank);
  auto* kept = lane.template own<std::int32_t>(lane.at.cursors());
  for (int first = 0; first < shape.ranks; first += shape.tp) {
    __syncthreads();
    clear(kept, lane.at.kept_words());
    if (threadIdx.x == 0) lost = 0;
    __syncthreads();
    count_kept_rows(a, first, kept, &lost);
    __syncthreads();
    const std::uint64_t word = pack(block.epoch, combine_payload(WireWay::put, lost != 0, a.print));
    for (int peer = first; peer < first + shape.tp && lost != 0; ++peer) {
      if (is_far(lane, peer)) continue;
      auto* words = reinterpret_cast<std::int32_t*>(lane.transport.peer_pointer(peer) + to);
      for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < lane.at.kept_words();
           i += kSendThreads)
        words[i] = kept[i];
    }
    __syncthreads();
    const int peer = first + static_cast<int>(threadIdx.x);
    if (peer < first + shape.tp && (lost == 0 || !is_far(lane, peer)))
      lane.transport.signal(peer, at, word, SignalOp::set);
    if constexpr (kHasFar<T>) {
      const Warp warp;
      warp.sync();
      for (int far = first + warp.in_block(); far < first + shape.tp && lost != 0;
           far += kSendThreads / Warp::kThreads) {
        if (!is_far(lane, far)) continue;
        lane.transport.put_signal(warp, far, to, kept, static_cast<std::size_t>(lane.at.kept_words()) * 4, at,
                                  word, SignalOp::set);
      }
      lane.transport.drain(warp);  // for the next group's
    }
  }
}

}  // namespace moelane::gpu
