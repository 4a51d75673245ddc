#pragma once

#include "gpu/launch.cuh"
#include "gpu/send.cuh"

// Dispatch, put way, the sender: writes one row for each token and destination rank into the destination's
// slot, its ids to every rank and its counts to those whose experts they count, then one signal; it never
// waits. Rows for far ranks are staged once and sent from there.
namespace moelane::gpu {

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
  fetch_arguments(a);
  // The first rows are on their way before anything is known of them.
  const Share share = lane.own_share(tokens);
  const Range own = entries_of(share, topk), own_batch = batch_of(own, own.begin, divider);
  BulkRows bulk(a.bulk, shared);
  const std::int32_t own_row = divider.quotient(own.begin) + BulkRows::warp();
  const bool begun = bulk.mine() && own_batch.size() > 0 && own_row * topk < own_batch.end;
  if (begun) bulk.load(a.in.x.at(own_row), a.in.scales.at(own_row));
  const Tables<T, in_shared> tables(a.context, shared, shape.experts + shape.ranks);
  Tables<T, in_shared>::copy_where(a.context, shared, where);
  const Sender<T, in_shared> sender{a, lane, block, tables, divider, tokens, share};
  bool bad = false;
  sender.keep_routing(bad);
  if (any_in_block(dead)) {
    if (begun) bulk.drop();
    return;
  }
  sender.send_routing();
  if (blockIdx.x == gridDim.x - 1) {
    sender.count_rows();
    __syncthreads();
    sender.send_counts();
  }

  std::uint64_t rows = 0;
#pragma unroll 1
  for (Range these = own_batch; these.size() > 0; these = batch_of(own, these.end, divider)) {
    const std::int32_t first_token = divider.quotient(these.begin), first = first_token * topk;
    const std::int32_t n = divider.quotient(these.end - first + topk - 1) * topk;  // of whole tokens
    if (these.begin > own.begin) __syncthreads();
    sender.find_ranks(batch, first_token, n);
    __syncthreads();
    rows += sender.find_slots(batch, these, first_token, n);
    __syncthreads();
    move_rows<2>(
        bulk, begun && these.begin == own.begin, a.width, divider.quotient(n), topk,
        {batch.to, shape.row_bytes}, [&](std::int32_t row) { return a.in.x.at(first_token + row); }, a.scales,
        batch.scales_to, [&](std::int32_t row) { return a.in.scales.at(first_token + row); });
    if constexpr (kHasFar<T>) {
      __syncthreads();
      sender.send_far_rows(batch, first_token, n);
    }
  }
  if (sender.signal() && threadIdx.x == 0) report_bad_input(block, a.in);
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
