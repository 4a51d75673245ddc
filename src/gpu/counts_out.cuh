#pragma once

#include <cstdint>

#include "gpu/tables.cuh"
#include "protocol/routing.hpp"

// The counts and offsets that the caller is given.
namespace moelane::gpu {

// Contiguous layout, by a warp: adds to the cursors of some experts of a rank where they begin in its output;
// key(i): where expert i of the range is in the tables. Writes the caller's `offsets`, if there are any.
template <DeviceTransport T, bool in_shared, class Key>
__device__ void add_firsts(const Tables<T, in_shared>& tables, Range range, std::int32_t alignment,
                           const Key& key, std::int32_t* offsets) {
  const std::int32_t end = prefix(
      range, [&](std::int32_t i) { return (tables.total[key(i)] + alignment - 1) / alignment * alignment; },
      [&](std::int32_t i, std::int32_t first_row) {
        tables.cursor[key(i)] += first_row;
        if (offsets != nullptr) offsets[i - range.begin] = first_row;
      });
  if (offsets != nullptr && threadIdx.x % 32 == 0) offsets[range.size()] = end;
}

// All threads of one block: the caller's counts. for_each(write) calls write(local, rows) for every local
// expert, by any thread. Whether all rows find room, as far as this thread knows; of the contiguous layout
// the last offset decides, which is written.
template <bool ranked, class ForEach>
__device__ bool write_counts_out(const Output& out, std::int32_t ranked_rows, std::int32_t locals,
                                 const ForEach& for_each) {
  const bool padded = out.layout == Layout::padded;
  std::int32_t most = 0;
  if (threadIdx.x == 0 && ranked) most = *out.row_count = ranked_rows;
  if (threadIdx.x == 0 && out.layout == Layout::contiguous) most = out.expert_offsets[locals];
  for_each([&](std::int32_t local, std::int32_t rows) {
    out.expert_counts[local] = rows;
    if (padded && rows > most) most = rows;
  });
  return most <= out.capacity;
}

// By one thread, where rows found no room: the caller's counts and offsets as they then are. needed(local):
// the rows that each local expert would need.
template <DeviceTransport T, class Needed>
__device__ __noinline__ void write_cut_counts(const Block<T>& block, const Output& out,
                                              std::int64_t rows_in_all, const Needed& needed) {
  const PlacementView& placement = block.context.lane.placement;
  const int me = block.context.lane.rank();
  Report report;
  write_counts(
      out, placement.local_experts(me), rows_in_all,
      [&](std::int32_t local) { return std::int64_t{needed(local)}; }, placement, me, report);
  if (report.fault != Fault::none) block.post(report);
}

}  // namespace moelane::gpu
