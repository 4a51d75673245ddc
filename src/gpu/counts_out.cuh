#pragma once

#include <cstdint>

#include "gpu/block.cuh"
#include "protocol/routing.hpp"

// The counts and offsets that the caller is given.
namespace moelane::gpu {

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
