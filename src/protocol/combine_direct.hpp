#pragma once

#include "protocol/combine_put.hpp"

// Combine, direct way: every rank says that its expert rows are ready, then everybody reads the rows of its
// tokens where they lie and sums them.
namespace moelane {

// `rows`: this rank's expert rows; peers' rows lie at the same offset of their heaps. Needs dispatch_direct
// before.
template <Team G, Transport T>
MOELANE_HD void combine_direct(const G& team, const Lane<T>& lane, const ExpertRows& rows,
                               const CombineOutput& out, std::uint64_t print, Report& report) {
  const Shape& shape = lane.shape();
  const LaneLayout& at = lane.at;
  const std::int32_t topk = shape.topk;
  const std::uint64_t word = pack(lane.state().epoch, combine_payload(WireWay::direct, false, print));
  lane.transport.signal_many(at.signal(Signal::combine, lane.rank()), word);
  bool dropped = false;
  if (!await_combine(lane, WireWay::direct, print, dropped, report)) return;

  const auto* ids = lane.template own<const std::int32_t>(at.own_ids());
  const auto* weights = lane.template own<const float>(at.own_weights());
  const auto* places = lane.template own<const std::int32_t>(at.own_places());
  for (std::int32_t t = team.unit(); t < lane.state().tokens; t += team.units()) {
    const void* from[32];
    float scale[32];
    int n = 0;
    for (std::int32_t k = 0; k < topk; ++k) {
      const std::int32_t id = ids[t * topk + k], place = places[t * topk + k];
      if (id < 0) continue;
      const std::int32_t rank = lane.placement.rank_of[id];
      if (place < 0) {
        const bool row_of_an_earlier_k = shape.by_rank && new_rank(lane.placement, ids + t * topk, k) < 0;
        if (!row_of_an_earlier_k && report.fault == Fault::none) {
          report.fault = Fault::dropped;
          report.peer = rank;
        }
        continue;
      }
      scale[n] = shape.by_rank ? 1.0F : weights[t * topk + k];
      from[n++] =
          rows.at(lane.placement.local_of[id], place) + (lane.transport.peer_pointer(rank) - lane.heap);
    }
    team.sum(from, scale, n, out.in_type, out.hidden, out.out.at(t), out.out_type, out.accumulate);
    report.bytes += static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(shape.answer_bytes) +
                    static_cast<std::uint64_t>(out.hidden) * size_of(out.out_type);
  }
}

}  // namespace moelane
