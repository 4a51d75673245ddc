#pragma once

#include "gpu/launch.cuh"
#include "gpu/receive.cuh"

// Dispatch, put way, the receiver: each block places the rows of a slice of the tokens of all sources, moves
// them there and lists them for combine. What lies before its slice the sources have counted, but for the
// beginning of the source in which the slice begins.
namespace moelane::gpu {

// One thread, one source: waits, and checks what it says. The first of a group's sources speaks for its
// tokens.
template <DeviceTransport T>
__device__ bool await_source(const ReceiveArgs<T>& a, const Block<T>& block, int source) {
  const Lane<T>& lane = a.context.lane;
  const Shape& shape = lane.shape();
  const std::uint64_t needed = pack(block.epoch + 1, 0);
  const int leader = source / shape.tp * shape.tp;
  std::uint64_t word = 0, group = 0;
  const auto wait = [&](int of, std::uint64_t& seen) {
    return block.wait_for({lane.at.signal(Signal::dispatch, of), needed, kEpochMask, of,
                           shape.direct ? lane.at.signal(Signal::counts, of) : 0},
                          Phase::dispatch, seen);
  };
  if (!wait(source, word)) return false;
  group = word;
  if (leader != source && !wait(leader, group)) return false;
  if constexpr (kCountsFarRows<T>) {  // its counts come by a put of their own
    std::uint64_t counts = 0;
    if (is_far(lane, source) &&
        !block.wait_for({lane.at.signal(Signal::counts, source), needed, kEpochMask, source}, Phase::counts,
                        counts)) {
      return false;
    }
  }
  if (way_of(word) != WireWay::put)
    return block.refuse_peer(Fault::other_way, Phase::dispatch, source, word, needed);
  const std::uint64_t print = lane.template own<const RoutingHeader>(lane.at.routing(source))->fingerprint;
  if (print != lane.placement.fingerprint) {
    return block.refuse_peer(Fault::other_placement, Phase::dispatch, source, print,
                             lane.placement.fingerprint);
  }
  const std::int32_t tokens = tokens_of(word), groups = tokens_of(group);
  if (tokens != groups || tokens > shape.max_tokens) {
    return block.refuse_peer(Fault::other_tokens, Phase::dispatch, source, static_cast<std::uint64_t>(tokens),
                             static_cast<std::uint64_t>(groups));
  }
  return true;
}

// One warp: each source's first token, of those of all; returns how many there are.
template <DeviceTransport T>
__device__ std::int32_t number_sources(const Lane<T>& lane, std::int32_t* first) {
  return prefix(
      Range{0, lane.shape().ranks}, [&](std::int32_t source) { return received_share(lane, source).count; },
      [&](std::int32_t source, std::int32_t before) { first[source] = before; });
}

// By one thread of the block that writes the caller's counts, when its rows are moved.
// `rows_in_all`: of the ranked layout.
template <DeviceTransport T, bool in_shared>
__device__ void note_dropped(const ReceiveArgs<T>& a, const Block<T>& block,
                             const Tables<T, in_shared>& tables, std::int32_t rows_in_all, bool full) {
  a.context.lane.state().dropped = 0;
  if (!full) return;
  write_cut_counts(block, a.out, rows_in_all, [&](std::int32_t local) { return tables.total[local]; });
  a.context.lane.state().dropped = 1;
}

// All threads of the last block: the step is received.
template <DeviceTransport T, bool ranked, bool in_shared>
__device__ void finish_dispatch(const Lane<T>& lane, const Block<T>& block,
                                const Receive<T, ranked, in_shared>& receive) {
  const auto tid = static_cast<int>(threadIdx.x);
  if constexpr (kCountsFarRows<T>) {
    if (tid < lane.shape().ranks && is_far(lane, tid))
      *lane.template own<std::uint64_t>(lane.at.expected(0, tid)) = receive.far_rows_of(tid);
  }
  if (tid != 0) return;
  LaneState& state = lane.state();
  state.epoch = block.epoch + 1;
  state.tokens =
      tokens_of(*lane.template own<const std::uint64_t>(lane.at.signal(Signal::dispatch, lane.rank())));
}

template <DeviceTransport T, bool ranked, bool in_shared>
__global__ void __launch_bounds__(kThreads, 1)
    dispatch_receive_kernel(const __grid_constant__ ReceiveArgs<T> a) {
  extern __shared__ __align__(kBulkAlignment) std::int32_t shared[];
  __shared__ Batch batch;
  __shared__ std::int32_t first[T::kMaxRanks + 1], full;
  const Lane<T>& lane = a.context.lane;
  const Shape& shape = lane.shape();
  const Block<T> block(a.context);
  const bool dead = block.dead();
  const std::uint32_t where = Tables<T, in_shared>::first_where(a.context);
  fetch_arguments(a);
  BulkRows bulk(a.bulk, shared);
  const Tables<T, in_shared> tables(a.context, shared, shape.experts + shape.ranks);
  Tables<T, in_shared>::copy_where(a.context, shared, where);
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  if (tid == 0) full = 0;
  if (any_in_block(dead)) return;
  block.wait_begins();
  if (any_in_block(tid < shape.ranks && !await_source(a, block, tid))) return;
  block.wait_ends();
  if (tid < 32) {
    const std::int32_t all = number_sources(lane, first);
    if (tid == 0) first[shape.ranks] = all;
  }
  __syncthreads();

  const Receive<T, ranked, in_shared> receive{
      a, lane, block, tables, a.context.topk_divider, first, shape.topk, first[shape.ranks]};
  const std::int32_t topk = shape.topk, most = a.context.topk_divider.quotient(kBatch);
  const Range own = slice_of(receive.tokens, gridDim.x, blockIdx.x);
  const bool some = own.size() > 0;
  const auto begin = some ? receive.token(own.begin) : typename Receive<T, ranked, in_shared>::Token{0, 0};
  receive.add_counts(begin.source);
  if (some) receive.add_before(begin.source, begin.number * topk);
  __syncthreads();
  // Contiguous: experts begin where the rows of those before end.
  const bool writes_counts = blockIdx.x == gridDim.x - 1;
  if (a.out.layout == Layout::contiguous) {
    if (tid < 32) receive.add_own_firsts(writes_counts);
    __syncthreads();
  }
  if (ranked && writes_counts && tables.total[receive.row_key()] > a.out.capacity) {
    receive.count_pairs_left();
    __syncthreads();
  }
  if (writes_counts && !receive.write_counts()) full = 1;
  if constexpr (kCountsFarRows<T>) {
    if (any_in_block(tid < shape.ranks && !receive.await_far_rows(tid))) return;
  }
  std::uint64_t rows = 0;
#pragma unroll 1
  for (std::int32_t t = own.begin; t < own.end; t += most) {
    rows += receive.move(batch, Range{t, t + most < own.end ? t + most : own.end}, bulk);
  }
  if (writes_counts) {
    __syncthreads();
    if (tid == 0) note_dropped(a, block, tables, ranked ? tables.total[receive.row_key()] : 0, full != 0);
  }
  if (block.last()) finish_dispatch(lane, block, receive);
  block.end(rows * static_cast<std::uint64_t>(shape.slot_bytes()));
}

template <DeviceTransport T>
void launch_dispatch_receive(const ReceiveArgs<T>& args, const Launch& launch) {
  with_tables(args.out.layout, args.context, [&]<bool ranked, bool in_shared>() {
    run<dispatch_receive_kernel<T, ranked, in_shared>>(args, launch);
  });
}

}  // namespace moelane::gpu
