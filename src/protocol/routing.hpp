#pragma once

#include "protocol/lane.hpp"

// What a lane keeps of its own group's routing, and questions about the ids of one token.
namespace moelane {

// Copies the group's ids (as int32) and weights into the lane, where combine finds them. An id outside [-1,
// experts) counts as -1 and is reported: the first one by (token, k).
template <Team G, Transport T>
MOELANE_HD void keep_routing(const G& team, const Lane<T>& lane, const Input& in, Report& report) {
  const std::int32_t topk = lane.shape().topk;
  auto* ids = lane.template own<std::int32_t>(lane.at.own_ids());
  auto* weights = lane.template own<float>(lane.at.own_weights());
  for (std::int32_t t = team.unit(); t < in.tokens; t += team.units()) {
    for (std::int32_t k = 0; k < topk; ++k) {
      const std::byte* from = in.ids.at(t, k);
      std::int64_t id = 0;
      if (in.wide_ids) {
        id = *reinterpret_cast<const std::int64_t*>(from);
      } else {
        id = *reinterpret_cast<const std::int32_t*>(from);
      }
      if (id < -1 || id >= lane.shape().experts) {
        if (report.fault == Fault::none) {
          report.fault = Fault::bad_id;
          report.token = t;
          report.k = k;
          report.value = id;
          report.limit = lane.shape().experts;
        }
        id = -1;
      }
      ids[t * topk + k] = static_cast<std::int32_t>(id);
      weights[t * topk + k] = *reinterpret_cast<const float*>(in.weights.at(t, k));
    }
  }
}

// The rank of the token's k-th expert when no earlier k names that rank, else -1 (also for -1 ids).
MOELANE_HD inline std::int32_t new_rank(const PlacementView& placement, const std::int32_t* ids,
                                        std::int32_t k) {
  if (ids[k] < 0) return -1;
  const std::int32_t rank = placement.rank_of[ids[k]];
  for (std::int32_t earlier = 0; earlier < k; ++earlier) {
    if (ids[earlier] >= 0 && placement.rank_of[ids[earlier]] == rank) return -1;
  }
  return rank;
}

// The number of an expert on `rank`, or -1 when it lives elsewhere.
MOELANE_HD inline std::int32_t local_on(const PlacementView& placement, std::int32_t id, std::int32_t rank) {
  return id >= 0 && placement.rank_of[id] == rank ? placement.local_of[id] : -1;
}

MOELANE_HD constexpr std::int64_t aligned(std::int64_t rows, std::int32_t alignment) {
  return (rows + alignment - 1) / alignment * alignment;
}

// Writes counts (and offsets) of rank `rank` to the caller, from the rows that each local expert would need,
// and reports the first expert whose rows found no room. `needed(local)` gives rows, `first(local)` the first
// of them.
template <class Needed>
MOELANE_HD void write_counts(const Output& out, std::int32_t local_experts, std::int64_t rows_in_all,
                             const Needed& needed, const PlacementView& placement, int rank, Report& report) {
  std::int64_t at = 0, end = 0;
  for (std::int32_t local = 0; local < local_experts; ++local) {
    const std::int64_t wanted = needed(local);
    if (wanted > 0) end = at + wanted;
    const std::int64_t room = out.layout == Layout::padded       ? out.capacity
                              : out.layout == Layout::contiguous ? (at < out.capacity ? out.capacity - at : 0)
                                                                 : wanted;
    const std::int64_t present = wanted < room ? wanted : room;
    out.expert_counts[local] = static_cast<std::int32_t>(present);
    if (out.layout == Layout::contiguous) {
      out.expert_offsets[local] = static_cast<std::int32_t>(at < out.capacity ? at : out.capacity);
      at += aligned(wanted, out.alignment);
    }
    if (present < wanted && report.fault == Fault::none) {
      report.fault = Fault::overflow;
      report.expert = placement.by_rank[placement.first[rank] + local];
      report.value = wanted;
      report.limit = out.capacity;
    }
  }
  if (out.layout == Layout::contiguous) {
    if (report.fault == Fault::overflow) report.value = end;
    out.expert_offsets[local_experts] = static_cast<std::int32_t>(at < out.capacity ? at : out.capacity);
  }
  if (out.layout == Layout::ranked) {
    const bool fits = rows_in_all <= out.capacity;
    *out.row_count = static_cast<std::int32_t>(fits ? rows_in_all : out.capacity);
    if (!fits && report.fault == Fault::none) {
      report.fault = Fault::overflow;
      report.value = rows_in_all;
      report.limit = out.capacity;
    }
  }
}

}  // namespace moelane
