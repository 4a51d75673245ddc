#pragma once

#include "gpu/direct_rows.cuh"
#include "gpu/launch.cuh"

// Dispatch, direct way. Blocks publish the counts; every block waits for those of all ranks, derives the
// places of its own slice of the tokens from them, writes the rows and says so to every rank, where block 0
// waits for all that say so. A count travels as one word with its epoch, so that it is data and flag in one
// and needs no fence.
namespace moelane::gpu {

// Ranked layout, when rows found no room: the (row, k) pairs of those that did, which no rank knew before.
template <DeviceTransport T>
__device__ __noinline__ void count_pairs_left(const Output& out, const Lane<T>& lane) {
  clear(out.expert_counts, lane.placement.local_experts(lane.rank()));
  __syncthreads();
  const std::int32_t topk = lane.shape().topk;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < *out.row_count * topk; i += kThreads) {
    const std::int32_t local = *reinterpret_cast<const std::int32_t*>(out.ids.at(i / topk, i % topk));
    if (local >= 0) atomicAdd(&out.expert_counts[local], 1);
  }
}

// The first rows that the block will move, on their way from memory while the counts are awaited: a warp
// takes a token.
__device__ inline void prefetch_rows(const Input& in, Range entries, const TopkDivider& divider,
                                     std::int64_t row_bytes) {
  constexpr std::int64_t kLine = 128;
  const std::int32_t token = divider.quotient(entries.begin) + static_cast<std::int32_t>(threadIdx.x / 32);
  if (token * divider.topk >= entries.end || entries.size() <= 0) return;
#pragma unroll 1
  for (std::int64_t at = threadIdx.x % 32 * kLine; at < row_bytes; at += 32 * kLine)
    ptx::prefetch(in.x.at(token) + at);
  if (in.scale_columns > 0 && threadIdx.x % 32 == 0) ptx::prefetch(in.scales.at(token));
}

// The tokens of every rank of the group in turn: all are numbered, the own are moved.
struct GroupShares {
  const Shape& shape;
  std::int32_t tokens;
  int mine;  // the number of the own part
  __device__ Share part(int j) const {
    return shape.tp == 1 ? Share{0, tokens} : share_of(tokens, shape.tp, j);
  }
  __device__ Range entries_of_own(std::int32_t topk) const {
    const Share own = part(mine);
    return {own.begin * topk, (own.begin + own.count) * topk};
  }
};

// The ids of the group's first entries, as far as there are threads to read them: to be counted, when other
// loads are on their way with them. Not in the ranked layout, where more than the id counts.
template <bool ranked>
class EarlyIds {
 public:
  static constexpr int kEach = 2, kAll = kEach * kThreads;

  __device__ EarlyIds(const Input& in, std::int32_t experts, std::int32_t entries,
                      const TopkDivider& divider) {
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const std::int32_t e = static_cast<std::int32_t>(threadIdx.x) + u * kThreads;
      ids_[u] = !ranked && e < entries ? id_of(in, experts, divider.quotient(e), divider.remainder(e)) : -1;
    }
  }
  // All threads: counts the entries `of`; count_far(entries, counters) those that were not read early.
  template <class CountFar>
  __device__ void count(Range of, std::int32_t* counters, const CountFar& count_far) const {
    std::int32_t begin = of.begin;
    if (!ranked) {
#pragma unroll
      for (int u = 0; u < kEach; ++u) {
        const std::int32_t e = static_cast<std::int32_t>(threadIdx.x) + u * kThreads;
        if (e >= of.begin && e < of.end && ids_[u] >= 0) atomicAdd(&counters[ids_[u]], 1);
      }
      begin = begin > kAll ? begin : kAll;
    }
    if (begin < of.end) count_far(Range{begin, of.end}, counters);
  }

 private:
  std::int32_t ids_[kEach];
};

// All threads: counts the rows of the own share and tells the peers. Where every block has seen all entries
// anyway, each tells a part of them.
template <DeviceTransport T, bool ranked, bool in_shared>
__device__ void publish_counts(const Direct<T, ranked, in_shared>& direct, const Tables<T, in_shared>& tables,
                               const EarlyIds<ranked>& early, const GroupShares& shares, std::int32_t topk) {
  const bool all_seen = !ranked && shares.tokens * topk <= EarlyIds<ranked>::kAll;
  const int publishers = all_seen ? static_cast<int>(gridDim.x) : 1;
  if (static_cast<int>(blockIdx.x) >= publishers) return;
  const Range own = shares.entries_of_own(topk);
  early.count(own, tables.total, [&](Range of, std::int32_t* to) { direct.count_far(of, to); });
  if (ranked) direct.count_pairs(own);
  __syncthreads();
  direct.publish(shares.tokens, static_cast<int>(blockIdx.x), publishers);
}

// All threads: waits for the counts of all and adds them up. False where some did not come or do not fit;
// this has been posted.
template <DeviceTransport T, bool ranked, bool in_shared>
__device__ bool gather_counts(const Direct<T, ranked, in_shared>& direct, const Shape& shape,
                              Source* sources) {
  const auto tid = static_cast<int>(threadIdx.x);
  const CountsResult result = direct.gather(sources);
  if (shape.tp > 1) __syncthreads();
  // The ranks of a group bring the same tokens.
  const bool differs = tid < shape.ranks && sources[tid].tokens != sources[tid / shape.tp * shape.tp].tokens;
  if (!any_in_block(result != CountsResult::complete || differs)) return true;
  if (!any_in_block(result == CountsResult::missing) && tid < shape.ranks) direct.check_source(tid);
  return false;
}

// All threads: numbers the entries of the group's shares that fall to this block, batch by batch, and writes
// the rows of the own share. `first`: those of the first share, whose first batch has been read. `begun`:
// bulk has the own share's first rows, which begin with entry `my_begin`. Returns this thread's rows.
template <DeviceTransport T, bool ranked, bool in_shared>
__device__ std::uint64_t write_rows(const Direct<T, ranked, in_shared>& direct,
                                    const Tables<T, in_shared>& tables, const GroupShares& shares,
                                    const TopkDivider& divider, Range first, std::int32_t my_begin,
                                    Batch& batch, BulkRows& bulk, bool begun, bool& bad) {
  std::uint64_t rows = 0;
  Range own = first;
#pragma unroll 1
  for (int j = 0; j < shares.shape.tp; ++j) {
    if (j > 0) {
      const std::int32_t counted = own.end;
      own = entries_of(shares.part(j), divider.topk);
      __syncthreads();
      direct.count_far(Range{counted, own.begin}, tables.cursor);
    }
#pragma unroll 1
    for (Range these = batch_of(own, own.begin, divider); these.size() > 0;
         these = batch_of(own, these.end, divider)) {
      if (j > 0 || these.begin > own.begin) {
        __syncthreads();
        bad |= direct.read(batch, these, divider.quotient(these.begin) * divider.topk);
        __syncthreads();
      }
      rows += direct.move(batch, these, j == shares.mine, bulk, begun && these.begin == my_begin);
    }
  }
  return rows;
}

// One thread, when the rows of all have come: the step is received.
template <DeviceTransport T>
__device__ void end_step(const DirectArgs<T>& a, const Block<T>& block, std::int32_t tokens, bool bad) {
  if (bad || !tokens_in(a.in).right) report_bad_input(block, a.in);
  LaneState& state = a.context.lane.state();
  state.epoch = block.epoch + 1;
  state.tokens = tokens;
  state.dropped = 0;
}

template <DeviceTransport T, bool ranked, bool in_shared>
__global__ void __launch_bounds__(kThreads, 1)
    dispatch_direct_kernel(const __grid_constant__ DirectArgs<T> a) {
  extern __shared__ __align__(kBulkAlignment) std::int32_t shared[];
  __shared__ Batch batch;
  __shared__ Source sources[T::kMaxRanks];
  __shared__ std::int32_t full;
  const Lane<T>& lane = a.context.lane;
  const Shape& shape = lane.shape();
  const Block<T> block(a.context);
  const bool dead = block.dead();
  const TopkDivider divider = a.context.topk_divider;
  const std::int32_t keys = shape.experts + (ranked ? shape.ranks : 0), topk = divider.topk;
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  fetch_arguments(a);

  // First all loads, then what is done with them, so that they are on their way together: where experts are,
  // the first entries of the group, and the first of the block's own batch.
  const std::int32_t tokens = tokens_in(a.in).count;
  const GroupShares shares{shape, tokens, shape.tp == 1 ? 0 : shape.rank % shape.tp};
  const std::uint32_t where = Tables<T, in_shared>::first_where(a.context);
  const EarlyIds<ranked> early(a.in, shape.experts, tokens * topk, divider);
  const Range first = entries_of(shares.part(0), topk), first_batch = batch_of(first, first.begin, divider);
  const std::int32_t own_entry = first_batch.begin + tid, batch_begin = divider.quotient(first.begin) * topk;
  Entry own_first{-1, 0};
  if (own_entry < first_batch.end)
    own_first = entry_of(a.in, divider.quotient(own_entry), divider.remainder(own_entry));
  const Range mine = entries_of(shares.part(shares.mine), topk),
              my_batch = batch_of(mine, mine.begin, divider);
  BulkRows bulk(a.bulk, shared);
  const std::int32_t my_row = divider.quotient(mine.begin) + BulkRows::warp();
  const bool begun = bulk.mine() && my_batch.size() > 0 && my_row * topk < my_batch.end;
  if (!bulk.any()) prefetch_rows(a.in, mine, divider, shape.row_bytes);
  const Tables<T, in_shared> tables(a.context, shared, keys);
  const Direct<T, ranked, in_shared> direct{{a, lane, block, tables, divider, topk, shape.experts, keys}};
  bool bad = false;
  if (tid == 0) full = 0;
  Tables<T, in_shared>::copy_where(a.context, shared, where);
  if (any_in_block(dead)) return;
  publish_counts(direct, tables, early, shares, topk);

  // What no peer waits for. The first rows will be there when their places are known.
  if (begun) bulk.load(a.in.x.at(my_row), a.in.scales.at(my_row));
  if (own_entry < first_batch.end)
    batch.id[own_entry - batch_begin] = keep(a.context, own_entry, own_first, bad);
  if (first_batch.size() > kThreads)
    bad |= direct.read(batch, Range{first_batch.begin + kThreads, first_batch.end}, batch_begin);
  early.count(Range{0, first.begin}, tables.cursor,
              [&](Range of, std::int32_t* to) { direct.count_far(of, to); });
  if (a.out.layout == Layout::padded) direct.prefetch_places(batch, first_batch);
  __syncthreads();

  block.wait_begins();
  if (!gather_counts(direct, shape, sources)) {
    if (begun) bulk.drop();
    return;
  }
  block.wait_ends();
  const bool writes_counts = blockIdx.x == gridDim.x - 1;
  if (a.out.layout == Layout::contiguous) {
    direct.add_all_firsts(writes_counts);
    __syncthreads();
  }
  if (writes_counts && !direct.write_counts()) full = 1;
  const std::uint64_t rows =
      write_rows(direct, tables, shares, divider, first, mine.begin, batch, bulk, begun, bad);
  if (writes_counts) {
    __syncthreads();
    if (tid == 0 && full != 0) direct.write_cut();
  }

  const std::uint64_t word = pack(block.epoch + 1, 0);
  bad = block.signal_written(blockIdx.x == 0 ? word | dispatch_payload(WireWay::direct, tokens) : word, bad);
  if (blockIdx.x == 0) {
    if (any_in_block(!direct.await_rows(sources, word, bad))) return;
    bad = any_in_block(bad);
    if (tid == 0) end_step(a, block, tokens, bad);
    if (ranked && *a.out.row_count < tables.total[shape.experts + shape.rank]) count_pairs_left(a.out, lane);
  }
  block.end(rows * static_cast<std::uint64_t>(shape.slot_bytes()));
}

template <DeviceTransport T>
void launch_dispatch_direct(const DirectArgs<T>& args, const Launch& launch) {
  with_tables(args.out.layout, args.context, [&]<bool ranked, bool in_shared>() {
    run<dispatch_direct_kernel<T, ranked, in_shared>>(args, launch);
  });
}

}  // namespace moelane::gpu
