#pragma once

#include "protocol/routing.hpp"

// Dispatch, put way: a source sends one row for each token and destination rank into the destination's slot
// for (source, token), then its ids with the signal; the receiver places the rows.
namespace moelane {

// Needs keep_routing before. Never waits.
template <Team G, Transport T>
MOELANE_HD void dispatch_put_send(const G& team, const Lane<T>& lane, const Input& in, Report& report) {
  const Shape& shape = lane.shape();
  const T& net = lane.transport;
  const LaneLayout& at = lane.at;
  const std::uint64_t epoch = lane.state().epoch + 1;
  const Share share = lane.own_share(in.tokens);
  const int me = lane.rank();
  const std::int32_t topk = shape.topk;
  const auto* ids = lane.template own<const std::int32_t>(at.own_ids()) + share.begin * topk;
  const auto* weights = lane.template own<const float>(at.own_weights()) + share.begin * topk;
  RowCopies<G> copies(team, shape.row_bytes, in.scale_columns, in.scale_bytes, in.scale_bytes);

  for (std::int32_t i = team.unit(); i < share.count; i += team.units()) {
    void** near = copies.to();
    std::int32_t far[32];
    int nears = 0, fars = 0;
    for (std::int32_t k = 0; k < topk; ++k) {
      const std::int32_t peer = new_rank(lane.placement, ids + i * topk, k);
      if (peer < 0) continue;
      std::byte* base = net.peer_pointer(peer);
      if (base != nullptr) {
        near[nears++] = base + at.slot(me, i);
      } else {
        far[fars++] = peer;
      }
    }
    if (fars > 0) near[nears++] = lane.heap + at.stage(i);  // staged once, sent from there to each
    if (nears == 0) continue;
    for (int n = 0; n < nears; ++n) {
      copies.scales_to()[n] = static_cast<std::byte*>(near[n]) + shape.scale_offset();
    }
    copies.push(nears, in.x.at(share.begin + i), in.scales.at(share.begin + i), in.scales.column_stride);
    if (fars > 0) {
      copies.flush();
      team.publish();
    }
    for (int n = 0; n < fars; ++n) {
      net.put_signal(far[n], at.slot(me, i), lane.heap + at.stage(i),
                     static_cast<std::size_t>(shape.slot_bytes()), at.signal(Signal::rows, me), 1,
                     SignalOp::add);
    }
    report.bytes += static_cast<std::uint64_t>(nears + fars) * static_cast<std::uint64_t>(shape.slot_bytes());
  }

  copies.flush();
  team.publish();
  if (!team.last()) return;
  // The routing goes out from the own heap's block for this source, which is where the own rank reads it.
  auto* header = lane.template own<RoutingHeader>(at.routing(me));
  header->fingerprint = lane.placement.fingerprint;
  const std::size_t ids_bytes = static_cast<std::size_t>(share.count) * static_cast<std::size_t>(topk) * 4;
  team.copy(lane.heap + at.routing_ids(me), ids, ids_bytes);
  if (shape.weights) team.copy(lane.heap + at.routing_weights(me), weights, ids_bytes);
  const std::size_t bytes =
      shape.weights ? at.routing_weights(0) - at.routing(0) + ids_bytes : sizeof(RoutingHeader) + ids_bytes;
  const std::uint64_t word = pack(epoch, dispatch_payload(WireWay::put, in.tokens));
  for (int i = 1; i < shape.ranks; ++i) {
    const int peer = (me + i) % shape.ranks;
    net.put_signal(peer, at.routing(me), lane.heap + at.routing(me), bytes, at.signal(Signal::dispatch, me),
                   word, SignalOp::set);
  }
  net.signal(me, at.signal(Signal::dispatch, me), word, SignalOp::set);
}

// Waits for every source and checks what it says; then the routing of all is here.
template <Transport T>
MOELANE_HD bool await_routing(const Lane<T>& lane, Report& report) {
  const Shape& shape = lane.shape();
  const std::uint64_t needed = pack(lane.state().epoch + 1, 0);
  for (int source = 0; source < shape.ranks; ++source) {
    std::uint64_t word = 0;
    const Wait wait{lane.at.signal(Signal::dispatch, source), needed, kEpochMask, source,
                    shape.direct ? lane.at.signal(Signal::counts, source) : 0};
    if (!await(lane, wait, Phase::dispatch, word, report)) return false;
    if (way_of(word) != WireWay::put)
      return refuse(report, Fault::other_way, Phase::dispatch, source, word, needed);
    const auto* header = lane.template own<const RoutingHeader>(lane.at.routing(source));
    if (header->fingerprint != lane.placement.fingerprint) {
      return refuse(report, Fault::other_placement, Phase::dispatch, source, header->fingerprint,
                    lane.placement.fingerprint);
    }
    const std::uint64_t first = *lane.template own<const std::uint64_t>(
        lane.at.signal(Signal::dispatch, source / shape.tp * shape.tp));
    if (tokens_of(word) != tokens_of(first) || tokens_of(word) > shape.max_tokens) {
      return refuse(report, Fault::other_tokens, Phase::dispatch, source,
                    static_cast<std::uint64_t>(tokens_of(word)),
                    static_cast<std::uint64_t>(tokens_of(first)));
    }
  }
  return true;
}

template <Transport T>
MOELANE_HD Share received_share(const Lane<T>& lane, int source) {
  const std::uint64_t word =
      *lane.template own<const std::uint64_t>(lane.at.signal(Signal::dispatch, source));
  return share_of(tokens_of(word), lane.shape().tp, source % lane.shape().tp);
}

// Gives every received row its place, writes counts and offsets, and counts the rows that come by puts. The
// places of (source, token, k) are the row number within the expert (padded) or the output; -1: not here, or
// no room.
template <Transport T>
MOELANE_HD void place_received(const Lane<T>& lane, const Output& out, Report& report) {
  const Shape& shape = lane.shape();
  const LaneLayout& at = lane.at;
  const int me = lane.rank();
  const std::int32_t topk = shape.topk, locals = lane.placement.local_experts(me);
  const bool ranked = out.layout == Layout::ranked;
  std::int32_t* cursor = cursors_of(lane);
  for (std::int32_t local = 0; local < locals; ++local) cursor[local] = 0;

  // First how many rows every expert gets, then where each begins, then the places in the order of (source,
  // token, k).
  std::int64_t rows = 0;
  for (int source = 0; source < shape.ranks; ++source) {
    const auto* ids = lane.template own<const std::int32_t>(at.routing_ids(source));
    const std::int32_t count = received_share(lane, source).count;
    std::uint64_t arriving = 0;
    for (std::int32_t i = 0; i < count; ++i) {
      bool here = false;
      for (std::int32_t k = 0; k < topk; ++k) {
        const std::int32_t local = local_on(lane.placement, ids[i * topk + k], me);
        if (local < 0) continue;
        if (!ranked || rows < out.capacity) ++cursor[local];  // ranked: pairs of rows that find room
        here = true;
        if (!ranked) ++rows;
      }
      if (here) ++arriving;
      if (here && ranked) ++rows;
    }
    *lane.template own<std::uint64_t>(at.expected(0, source)) += arriving;
  }
  write_counts(
      out, locals, rows, [&](std::int32_t local) { return std::int64_t{cursor[local]}; }, lane.placement, me,
      report);
  std::int64_t begin = 0;
  for (std::int32_t local = 0; local < locals; ++local) {
    const std::int64_t next =
        out.layout == Layout::contiguous ? begin + aligned(cursor[local], out.alignment) : 0;
    cursor[local] = static_cast<std::int32_t>(begin);
    begin = next;
  }
  std::int32_t next_row = 0;  // ranked
  for (int source = 0; source < shape.ranks; ++source) {
    const auto* ids = lane.template own<const std::int32_t>(at.routing_ids(source));
    auto* places = lane.template own<std::int32_t>(at.places(source));
    const std::int32_t count = received_share(lane, source).count;
    for (std::int32_t i = 0; i < count; ++i) {
      bool first = true;
      for (std::int32_t k = 0; k < topk; ++k) {
        const std::int32_t local = local_on(lane.placement, ids[i * topk + k], me);
        std::int32_t place = -1;
        if (local >= 0 && ranked && first) place = next_row++;
        if (local >= 0 && !ranked) place = cursor[local]++;
        if (local >= 0) first = false;
        places[i * topk + k] = place < out.capacity ? place : -1;
      }
    }
  }
}

// Waits, places and copies. `report.fault` overflow: the step is invalid, all duties are done.
template <Team G, Transport T>
MOELANE_HD void dispatch_put_recv(const G& team, const Lane<T>& lane, const Output& out, Report& report) {
  const Shape& shape = lane.shape();
  const LaneLayout& at = lane.at;
  const int me = lane.rank();
  const std::int32_t topk = shape.topk;
  if (!await_routing(lane, report)) return;
  if (team.leader()) place_received(lane, out, report);
  team.barrier();
  for (int source = 0; source < shape.ranks; ++source) {
    if (lane.transport.peer_pointer(source) != nullptr) continue;  // covered by the signal
    std::uint64_t word = 0;
    const std::uint64_t rows = *lane.template own<const std::uint64_t>(at.expected(0, source));
    if (!await(lane, {at.signal(Signal::rows, source), rows, kCounterMask, source}, Phase::rows, word,
               report))
      return;
  }

  RowCopies<G> copies(team, shape.row_bytes, out.scale_columns, out.scale_bytes, out.scales.column_stride);
  for (int source = 0; source < shape.ranks; ++source) {
    const auto* ids = lane.template own<const std::int32_t>(at.routing_ids(source));
    const auto* weights = lane.template own<const float>(at.routing_weights(source));
    const auto* places = lane.template own<const std::int32_t>(at.places(source));
    const std::int32_t count = received_share(lane, source).count;
    for (std::int32_t i = team.unit(); i < count; i += team.units()) {
      void** to = copies.to();
      int n = 0;
      const std::byte* slot = lane.heap + at.slot(source, i);
      for (std::int32_t k = 0; k < topk; ++k) {
        const std::int32_t place = places[i * topk + k];
        if (place < 0) continue;
        const std::int32_t local = lane.placement.local_of[ids[i * topk + k]];
        copies.scales_to()[n] = out.scales.at(local, place);
        to[n++] = out.x.at(local, place);
        if (out.layout == Layout::ranked) {
          for (std::int32_t j = 0; j < topk; ++j) {
            const std::int32_t here = local_on(lane.placement, ids[i * topk + j], me);
            *reinterpret_cast<std::int32_t*>(out.ids.at(place, j)) = here;
            *reinterpret_cast<float*>(out.weights.at(place, j)) = here < 0 ? 0.0F : weights[i * topk + j];
          }
        }
      }
      if (n == 0) continue;
      copies.push(n, slot, slot + shape.scale_offset(), out.scale_bytes);
      report.bytes += static_cast<std::uint64_t>(n + 1) * static_cast<std::uint64_t>(shape.slot_bytes());
    }
  }
  copies.flush();
  team.publish();
  if (!team.last()) return;
  LaneState& state = lane.state();
  ++state.epoch;
  state.tokens = tokens_of(*lane.template own<const std::uint64_t>(at.signal(Signal::dispatch, me)));
  state.dropped = report.fault == Fault::overflow ? 1 : 0;
}

}  // namespace moelane
