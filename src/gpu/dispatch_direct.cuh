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

  // The tokens of every rank of the group in turn: all are numbered, the own are moved.
  const std::int32_t tokens = tokens_in(a.in).count;
  const int mine = shape.tp == 1 ? 0 : shape.rank % shape.tp;
  const auto part = [&](int j) { return shape.tp == 1 ? Share{0, tokens} : share_of(tokens, shape.tp, j); };

  // First all loads, then what is done with them, so that they are on their way together: where experts are,
  // the first entries of the group, to be counted (not in the ranked layout, where more than the id counts),
  // and the first of the block's own batch.
  constexpr int kEarly = 2;
  std::int32_t early[kEarly];
  const std::uint32_t where = Tables<T, in_shared>::first_where(a.context);
#pragma unroll
  for (int u = 0; u < kEarly; ++u) {
    const std::int32_t e = tid + u * kThreads;
    early[u] = !ranked && e < tokens * topk
                   ? id_of(a.in, shape.experts, divider.quotient(e), divider.remainder(e))
                   : -1;
  }
  const Range first = entries_of(part(0), topk), first_batch = batch_of(first, first.begin, divider);
  const std::int32_t own_entry = first_batch.begin + tid, batch_begin = divider.quotient(first.begin) * topk;
  Entry own_first{-1, 0};
  if (own_entry < first_batch.end)
    own_first = entry_of(a.in, divider.quotient(own_entry), divider.remainder(own_entry));
  const Range my_first = entries_of(part(mine), topk), my_batch = batch_of(my_first, my_first.begin, divider);
  BulkRows bulk(a.bulk, shared);
  const std::int32_t my_row = divider.quotient(my_first.begin) + BulkRows::warp();
  const bool begun = bulk.mine() && my_batch.size() > 0 && my_row * topk < my_batch.end;
  if (!bulk.any()) prefetch_rows(a.in, my_first, divider, shape.row_bytes);
  const Tables<T, in_shared> tables(a.context, shared, keys);
  const Direct<T, ranked, in_shared> direct{{a, lane, block, tables, divider, topk, shape.experts, keys}};
  bool bad = false;
  if (tid == 0) full = 0;
  Tables<T, in_shared>::copy_where(a.context, shared, where);
  const auto count_entries = [&](Range of, std::int32_t* counters) {
    std::int32_t begin = of.begin;
    if (!ranked) {
#pragma unroll
      for (int u = 0; u < kEarly; ++u) {
        const std::int32_t e = tid + u * kThreads;
        if (e >= of.begin && e < of.end && early[u] >= 0) atomicAdd(&counters[early[u]], 1);
      }
      begin = begin > kEarly * kThreads ? begin : kEarly * kThreads;
    }
    if (begin < of.end) direct.count_far(Range{begin, of.end}, counters);
  };
  if (any_in_block(dead)) return;
  // Where every block has seen all entries anyway, each publishes to a part of the peers.
  const int publishers = !ranked && tokens * topk <= kEarly * kThreads ? static_cast<int>(gridDim.x) : 1;
  if (static_cast<int>(blockIdx.x) < publishers) {
    const Range share{part(mine).begin * topk, (part(mine).begin + part(mine).count) * topk};
    count_entries(share, tables.total);
    if (ranked) direct.count_pairs(share);
    __syncthreads();
    direct.publish(tokens, static_cast<int>(blockIdx.x), publishers);
  }
  // What no peer waits for. The first rows will be there when their places are known.
  if (begun) bulk.load(a.in.x.at(my_row), a.in.scales.at(my_row));
  if (own_entry < first_batch.end)
    batch.id[own_entry - batch_begin] = keep(a.context, own_entry, own_first, bad);
  if (first_batch.size() > kThreads)
    bad |= direct.read(batch, Range{first_batch.begin + kThreads, first_batch.end}, batch_begin);
  count_entries(Range{0, first.begin}, tables.cursor);
  if (a.out.layout == Layout::padded) direct.prefetch_places(batch, first_batch);
  __syncthreads();
  block.wait_begins();
  const CountsResult found = direct.gather(sources);
  if (shape.tp > 1) __syncthreads();
  // The ranks of a group bring the same tokens.
  const bool differs = tid < shape.ranks && sources[tid].tokens != sources[tid / shape.tp * shape.tp].tokens;
  if (any_in_block(found != CountsResult::complete || differs)) {
    if (!any_in_block(found == CountsResult::missing) && tid < shape.ranks) direct.check_source(tid);
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

  std::uint64_t rows = 0;
  Range own = first;
#pragma unroll 1
  for (int j = 0; j < shape.tp; ++j) {
    if (j > 0) {
      const std::int32_t counted = own.end;
      own = entries_of(part(j), topk);
      __syncthreads();
      direct.count_far(Range{counted, own.begin}, tables.cursor);
    }
#pragma unroll 1
    for (Range these = batch_of(own, own.begin, divider); these.size() > 0;
         these = batch_of(own, these.end, divider)) {
      if (j > 0 || these.begin > own.begin) {
        __syncthreads();
        bad |= direct.read(batch, these, divider.quotient(these.begin) * topk);
        __syncthreads();
      }
      rows += direct.move(batch, these, j == mine, bulk, begun && these.begin == my_first.begin);
    }
  }
  if (writes_counts) {
    __syncthreads();
    if (tid == 0 && full != 0) direct.write_cut();
  }

  const std::uint64_t needed = pack(block.epoch + 1, 0);
  bad = block.signal_written(blockIdx.x == 0 ? needed | dispatch_payload(WireWay::direct, tokens) : needed,
                             bad);
  if (blockIdx.x == 0) {
    if (any_in_block(!direct.await_rows(sources, needed, bad))) return;
    bad = any_in_block(bad);
    if (tid == 0) {
      if (bad || !tokens_in(a.in).right) report_bad_input(block, a.in);
      LaneState& state = lane.state();
      state.epoch = block.epoch + 1;
      state.tokens = tokens;
      state.dropped = 0;
    }
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
