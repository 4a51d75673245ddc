#pragma once

#include "gpu/far.cuh"
#include "gpu/kernels.cuh"
#include "gpu/numbers.cuh"
#include "gpu/sum.cuh"
#include "protocol/combine_direct.hpp"

// Where the answers are that a token's sum takes, and which of them there are.
namespace moelane::gpu {

inline constexpr int kTerms = 512;
inline constexpr int kSumThreads =
    896;  // as many as the registers allow; 28 warps are a row of 7168 16-bit elements

struct TermTable {
  Term term[kTerms];
};

template <DeviceTransport T>
struct Combine {
  const CombineArgs<T>& a;
  const Lane<T>& lane;
  const Block<T>& block;

  // Threads 0 to ranks - 1, one source each: its signal, and whether it dropped rows.
  __device__ bool await_source(int source, bool& dropped) const {
    const std::uint64_t needed = pack(block.epoch, 0);
    std::uint64_t word = 0;
    if (!block.wait_for({lane.at.signal(Signal::combine, source), needed, kEpochMask, source}, Phase::combine,
                        word)) {
      return false;
    }
    const WireWay way = a.direct ? WireWay::direct : WireWay::put;
    if (way_of(word) != way) return block.refuse_peer(Fault::other_way, Phase::combine, source, word, needed);
    const std::uint64_t seen = word & kFingerprintMask, ours = a.print & kFingerprintMask;
    if (seen != ours) return block.refuse_peer(Fault::other_tensor, Phase::combine, source, seen, ours);
    dropped = (word & kDroppedBit) != 0;
    return true;
  }

  __device__ bool source_dropped(int source) const {
    return (*lane.template own<const std::uint64_t>(lane.at.signal(Signal::combine, source)) & kDroppedBit) !=
           0;
  }

  // One thread of the call: who had no room for rows of this group.
  __device__ __noinline__ void report_dropped(std::uint32_t first_dropped, bool dropped) const {
    Report report;
    report.fault = Fault::dropped;
    if (a.direct) {
      if (first_dropped == kNone) return;
      report.peer =
          lane.placement.rank_of[lane.template own<const std::int32_t>(lane.at.own_ids())[first_dropped]];
      a.context.shared_state->first_dropped = kNone;
    } else {
      if (!dropped) return;
      for (report.peer = 0; !source_dropped(report.peer);) ++report.peer;
    }
    block.post(report);
  }

  __device__ std::int32_t rank_of_entry(const std::int32_t* ids, std::int32_t entry) const {
    const std::int32_t id = ids[entry];
    if (id < 0) return -1;
    if (!lane.shape().by_rank) return lane.placement.rank_of[id];
    const std::int32_t k = a.context.topk_divider.remainder(entry);
    return new_rank(lane.placement, ids + entry - k, k);
  }

  // Put way, when some rank dropped rows: the key by which the group's rows were numbered, and how many were
  // kept.
  __device__ std::int32_t key_of_entry(const std::int32_t* ids, std::int32_t entry) const {
    const std::int32_t rank = rank_of_entry(ids, entry);
    return rank < 0 ? -1 : lane.shape().by_rank ? lane.shape().experts + rank : ids[entry];
  }
  __device__ bool kept(std::int32_t rank, std::int32_t key, std::int32_t number) const {
    if (!source_dropped(rank)) return true;
    const auto* kept_rows = lane.template own<const std::int32_t>(lane.at.kept(rank));
    return number < kept_rows[lane.shape().by_rank ? 0 : key];
  }
  // All threads: counts the group's rows before this block's.
  __device__ __noinline__ void count_before(const std::int32_t* ids, std::int32_t entry,
                                            std::int32_t* cursor) const {
    clear(cursor, lane.shape().experts + lane.shape().ranks);
    __syncthreads();
    count(Range{0, entry}, cursor, [&](std::int32_t i) { return key_of_entry(ids, i); });
    __syncthreads();
  }
  // All threads: takes those terms out of the table that were dropped; of the entries [first, first + n).
  __device__ __noinline__ void take_out(TermTable& table, const std::int32_t* ids, std::int32_t first,
                                        std::int32_t n, std::int32_t* cursor) const {
    __shared__ std::int32_t numbers[kTerms], keys[kTerms];
    const auto tid = static_cast<std::int32_t>(threadIdx.x);
    for (std::int32_t i = tid; i < n; i += kSumThreads) keys[i] = key_of_entry(ids, first + i);
    __syncthreads();
    if (tid < 32) number(keys, n, cursor, numbers);
    __syncthreads();
    for (std::int32_t i = tid; i < n; i += kSumThreads) {
      const std::int32_t rank = rank_of_entry(ids, first + i);
      if (rank >= 0 && !kept(rank, keys[i], numbers[i])) table.term[i].row = nullptr;
    }
    __syncthreads();
  }

  // All threads: how many answers every far rank has sent for the group's tokens, into `answers`, by rank.
  __device__ void count_far_answers(const std::int32_t* ids, std::int32_t tokens,
                                    std::int32_t* answers) const {
    clear(answers, lane.shape().ranks);
    __syncthreads();
    count(Range{0, tokens * lane.shape().topk}, answers, [&](std::int32_t i) {
      const std::int32_t rank = rank_of_entry(ids, i);
      return rank >= 0 && is_far(lane, rank) ? rank : -1;
    });
    __syncthreads();
    const auto source = static_cast<int>(threadIdx.x);
    if (source >= lane.shape().ranks || !is_far(lane, source) || !source_dropped(source)) return;
    const auto* kept_rows = lane.template own<const std::int32_t>(lane.at.kept(source));
    answers[source] = 0;
    for (int i = 0; i < lane.at.kept_words(); ++i) {
      if (lane.shape().by_rank || lane.placement.rank_of[i] == source) answers[source] += kept_rows[i];
    }
  }
  __device__ std::uint64_t& expected_answers(int source) const {
    return *lane.template own<std::uint64_t>(lane.at.expected(1, source));
  }
  // One thread, one source: waits for answers that its signal does not cover.
  __device__ bool await_far_answers(int source, std::int32_t answers) const {
    if (!is_far(lane, source)) return true;
    const std::uint64_t needed = expected_answers(source) + static_cast<std::uint64_t>(answers);
    std::uint64_t word = 0;
    return block.wait_for({lane.at.signal(Signal::answers, source), needed, kCounterMask, source},
                          Phase::answers, word);
  }

  __device__ Term term(const std::int32_t* ids, std::int32_t entry) const {
    const Shape& shape = lane.shape();
    // The loads that need no id go with its own.
    const std::int32_t id = ids[entry],
                       place =
                           a.direct ? lane.template own<const std::int32_t>(lane.at.own_places())[entry] : 0;
    const float weight = shape.by_rank ? 1.0F : lane.template own<const float>(lane.at.own_weights())[entry];
    if (id < 0 || place < 0) return {nullptr, 0};
    if (a.direct) {
      const std::uint32_t where = __ldg(a.context.where + id);
      return {a.rows.at(local_of(where), place) + (lane.transport.peer_pointer(rank_of(where)) - lane.heap),
              weight};
    }
    if (shape.by_rank && rank_of_entry(ids, entry) < 0) return {nullptr, 0};
    const std::int32_t token = a.context.topk_divider.quotient(entry);
    return {lane.heap + lane.at.answer(token, entry - token * shape.topk), weight};
  }
};

}  // namespace moelane::gpu
