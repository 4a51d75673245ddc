#pragma once

#include "gpu/kernels.cuh"
#include "gpu/launch.cuh"
#include "gpu/numbers.cuh"
#include "gpu/shared_memory.hpp"
#include "gpu/sum.cuh"
#include "protocol/combine_direct.hpp"

// Combine, where the tokens are: waits for every rank's signal and sums the answers, which lie with their
// experts (direct way, whose first act is to say that the own expert rows are ready) or in the own slots (put
// way). Work is shared out by pieces of rows, so that the blocks share even a single token.
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

template <DeviceTransport T, DType in, int n>
__global__ void __launch_bounds__(kSumThreads, 1) combine_kernel(const __grid_constant__ CombineArgs<T> a) {
  extern __shared__ std::int32_t shared[];
  __shared__ TermTable table;
  const Lane<T>& lane = a.context.lane;
  const Shape& shape = lane.shape();
  const Block<T> block(a.context);
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  const bool dead = block.dead();
  if (a.direct && blockIdx.x == 0 && tid < shape.ranks && !dead) {  // before all else: the peers wait for it
    lane.transport.fence();
    block.signal_one(tid, lane.at.signal(Signal::combine, shape.rank),
                     pack(block.epoch, combine_payload(WireWay::direct, false, a.print)));
  }
  const Combine<T> combine{a, lane, block};
  fetch_arguments(a);
  // The thread that reports what was dropped has read early what there may be to report.
  const bool reports = blockIdx.x == gridDim.x - 1 && tid == kSumThreads - 1;
  const std::uint32_t first_dropped = reports ? a.context.shared_state->first_dropped : kNone;
  const std::int32_t topk = shape.topk, tokens = a.tokens >= 0 ? a.tokens : lane.state().tokens;
  const auto* ids = lane.template own<const std::int32_t>(lane.at.own_ids());
  const std::int32_t chunks = chunks_of<n>(a.out.hidden), most = a.context.topk_divider.quotient(kTerms);
  const Range own = slice_of(tokens * chunks, gridDim.x, blockIdx.x);
  const std::int32_t first_token = own.begin / chunks,
                     end_token = own.size() <= 0 ? first_token : (own.end - 1) / chunks + 1;
  const auto batch = [&](std::int32_t first) {  // tokens from `first` that this block sums next
    return end_token - first < most ? end_token - first : most;
  };
  const auto fill = [&](std::int32_t first) {
  // The last threads first: the first ones wait for the signals meanwhile.
#pragma unroll 1
    for (std::int32_t i = kSumThreads - 1 - tid; i < batch(first) * topk; i += kSumThreads) {
      table.term[i] = combine.term(ids, first * topk + i);
    }
  };
  fill(first_token);  // where the answers will be is known before they are there

  // While the signals are awaited, a short call's rows come near: in most cases they are ready long before.
  // What a peer still writes is written there too.
  constexpr int kPieceBytes = 32 * n * sizeof(typename Element<in>::Type), kLine = 128;
  if (kPieceBytes >= kLine && a.direct && own.size() <= kSumThreads / 32) {
    __syncthreads();
    constexpr int kLines = kPieceBytes < kLine ? 1 : kPieceBytes / kLine;
    const std::int32_t unit = own.begin + tid / 32, token = unit / chunks - first_token;
    const auto piece = static_cast<std::int64_t>(unit - (token + first_token) * chunks) * kPieceBytes;
    for (std::int32_t i = tid % 32; unit < own.end && token < most && i < topk * kLines; i += 32) {
      const std::byte* row = table.term[token * topk + i / kLines].row;
      if (row != nullptr) ptx::prefetch(row + piece + i % kLines * kLine);
    }
  }
  block.wait_begins();
  bool come = true, dropped = false;
  if (tid < shape.ranks && !dead) come = combine.await_source(tid, dropped);
  if (any_in_block(!come || dead)) return;
  dropped = any_in_block(dropped);
  block.wait_ends();
  auto* const cursor = a.context.scratch == nullptr
                           ? shared
                           : a.context.scratch + static_cast<std::int64_t>(blockIdx.x) * counter_words(shape);
  if (dropped) combine.count_before(ids, first_token * topk, cursor);
#pragma unroll 1
  for (std::int32_t first = first_token; batch(first) > 0; first += most) {
    if (first != first_token) {
      __syncthreads();
      fill(first);
      __syncthreads();
    }
    if (dropped) combine.take_out(table, ids, first * topk, batch(first) * topk, cursor);
    // The pieces of these tokens that are this block's.
    const std::int32_t from = first * chunks, to_here = from + batch(first) * chunks;
    const std::int32_t last = own.end < to_here ? own.end : to_here;
#pragma unroll 1
    for (std::int32_t unit = (own.begin > from ? own.begin : from) + tid / 32; unit < last;
         unit += kSumThreads / 32) {
      const std::int32_t token = unit / chunks;
      std::byte* const to = a.out.out.at(token);
      sum_chunk<in, n>(table.term + (token - first) * topk, topk, a.out.hidden, unit - token * chunks,
                       a.out.out_type, a.out.accumulate, &to, 1);
    }
  }
  if (reports) combine.report_dropped(first_dropped, dropped);
  block.end(0);
}

template <DeviceTransport T>
void launch_combine(const CombineArgs<T>& args, const Launch& launch) {
  with_type(args.out.in_type, args.aligned,
            [&]<DType in, int n>() { run<combine_kernel<T, in, n>>(args, launch, kSumThreads); });
}

}  // namespace moelane::gpu
