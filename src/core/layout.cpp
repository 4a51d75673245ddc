#include "core/layout.hpp"

#include "moelane/config.hpp"
#include "moelane/heap.hpp"

namespace moelane {

Shape shape_of(const Config& config, int ranks, int rank) {
  Shape shape;
  shape.ranks = ranks;
  shape.rank = rank;
  shape.tp = config.tp_size;
  shape.experts = config.experts;
  shape.topk = config.topk;
  shape.max_tokens = config.max_tokens;
  shape.lanes = config.in_flight;
  shape.share = share_of(config.max_tokens, config.tp_size, 0).count;
  shape.row_bytes = static_cast<std::int64_t>(config.row_bytes());
  shape.scale_bytes = static_cast<std::int64_t>(config.scale_row_bytes());
  shape.answer_bytes = static_cast<std::int64_t>(config.answer_bytes());
  shape.symmetric_bytes = static_cast<std::int64_t>(config.symmetric_bytes);
  shape.put = config.way != Way::direct;
  const bool addressed = !config.force_puts && !config.network;
  shape.direct = config.way != Way::put && !config.partial_sums && addressed;
  shape.by_rank = config.layout == Layout::ranked || config.partial_sums;
  shape.weights = shape.by_rank;
  shape.staged = shape.put && !addressed;
  return shape;
}

std::size_t Config::heap_bytes(int ranks) const {
  Config own = *this;
  own.symmetric_bytes = 0;
  return own.mapped_bytes(ranks);
}

std::size_t Config::mapped_bytes(int ranks) const {
  validate(ranks);
  const Shape shape = shape_of(*this, ranks, 0);
  const LaneLayout lane(shape);
  return control_bytes(ranks) + static_cast<std::size_t>(shape.lanes) * (lane.end() - control_bytes(ranks));
}

HeapBreakdown heap_breakdown(const Config& config, int ranks) {
  config.validate(ranks);
  const LaneLayout lane(shape_of(config, ranks, 0));
  // Each part ends where the next begins, so their sum is the whole whatever the padding is.
  HeapBreakdown parts;
  parts.control = control_bytes(ranks);
  parts.lanes = config.in_flight;
  parts.signals = lane.counts(0) - lane.bell();
  parts.counts = lane.own_routing() - lane.counts(0);
  parts.routing = lane.stage(0) - lane.own_routing();
  parts.staging = lane.slot(0, 0) - lane.stage(0);
  parts.slots = lane.answer(0, 0) - lane.slot(0, 0);
  parts.answers = lane.symmetric() - lane.answer(0, 0);
  parts.symmetric = lane.end() - lane.symmetric();
  return parts;
}

}  // namespace moelane
