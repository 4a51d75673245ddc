#pragma once

#include "protocol/routing.hpp"

// Dispatch, direct way: counts travel first; then every source knows the final place of its rows and writes
// them there.
namespace moelane {

// Identifies the output that peers write, for the check before anybody does: 48 bits that are equal on all
// ranks when offset, strides, capacity and layout are.
struct OutputPrint {
  std::uint64_t bits = 0;
};

// Publishes the rows that this rank will send: for each expert, and (ranked layout) for each rank. A rank's
// counts are also its permission to write into its output.
template <Team G, Transport T>
MOELANE_HD void publish_counts(const G& team, const Lane<T>& lane, std::int32_t tokens, OutputPrint print) {
  const Shape& shape = lane.shape();
  const LaneLayout& at = lane.at;
  const std::uint64_t epoch = lane.state().epoch + 1;
  const Share share = lane.own_share(tokens);
  const std::int32_t topk = shape.topk;
  const auto* ids = lane.template own<const std::int32_t>(at.own_ids()) + share.begin * topk;
  auto* words = lane.template own<std::uint64_t>(at.own_counts());
  const int plain = shape.experts + shape.ranks;
  for (int i = 0; i < plain; ++i) words[i] = pack(epoch, 0);
  for (std::int32_t i = 0; i < share.count; ++i) {
    for (std::int32_t k = 0; k < topk; ++k) {
      const std::int32_t id = ids[i * topk + k];
      if (id >= 0) ++words[id];
      const std::int32_t peer = shape.by_rank ? new_rank(lane.placement, ids + i * topk, k) : -1;
      if (peer >= 0) ++words[shape.experts + peer];
    }
  }
  const auto extra = [&](CountWord which, std::uint64_t value) {
    words[plain + static_cast<int>(which)] = pack(epoch, value);
  };
  extra(CountWord::tokens, static_cast<std::uint64_t>(tokens));
  extra(CountWord::units, 1);
  extra(CountWord::placement_low, lane.placement.fingerprint);
  extra(CountWord::placement_high, lane.placement.fingerprint >> kPayloadBits);
  extra(CountWord::output_low, print.bits);
  extra(CountWord::output_high, print.bits >> kPayloadBits);
  const std::size_t bytes = static_cast<std::size_t>(at.count_words()) * 8;
  for (int i = 1; i <= shape.ranks; ++i) {
    const int peer = (lane.rank() + i) % shape.ranks;
    lane.transport.put_signal(peer, at.counts(lane.rank()), words, bytes,
                              at.signal(Signal::counts, lane.rank()), pack(epoch, 0), SignalOp::set);
  }
  (void)team;
}

// Waits for the counts of all and checks that nobody would write out of place.
template <Transport T>
MOELANE_HD bool await_counts(const Lane<T>& lane, OutputPrint print, Report& report) {
  const Shape& shape = lane.shape();
  const LaneLayout& at = lane.at;
  const std::uint64_t needed = pack(lane.state().epoch + 1, 0);
  const int plain = shape.experts + shape.ranks;
  for (int source = 0; source < shape.ranks; ++source) {
    std::uint64_t word = 0;
    const Wait wait{at.signal(Signal::counts, source), needed, kEpochMask, source,
                    at.signal(Signal::dispatch, source)};
    if (!await(lane, wait, Phase::counts, word, report)) return false;
    const auto get = [&](int of, CountWord which) {
      return payload_of(
          lane.template own<const std::uint64_t>(at.counts(of))[plain + static_cast<int>(which)]);
    };
    const auto both = [&](CountWord low, CountWord high) {
      return get(source, low) | get(source, high) << kPayloadBits;
    };
    constexpr std::uint64_t k48 = (std::uint64_t{1} << 48) - 1;
    const std::uint64_t placement = both(CountWord::placement_low, CountWord::placement_high);
    const std::uint64_t output = both(CountWord::output_low, CountWord::output_high);
    if (placement != (lane.placement.fingerprint & k48)) {
      return refuse(report, Fault::other_placement, Phase::counts, source, placement,
                    lane.placement.fingerprint & k48);
    }
    if (output != (print.bits & k48)) {
      return refuse(report, Fault::other_tensor, Phase::counts, source, output, print.bits & k48);
    }
    const std::uint64_t tokens = get(source, CountWord::tokens);
    const std::uint64_t groups = get(source / shape.tp * shape.tp, CountWord::tokens);
    if (tokens != groups || tokens > static_cast<std::uint64_t>(shape.max_tokens)) {
      return refuse(report, Fault::other_tokens, Phase::counts, source, tokens, groups);
    }
  }
  return true;
}

// From the counts of all: the number of the group's first row of each expert (by_rank: each rank), where each
// expert begins in its rank's output, and the own counts and offsets for the caller.
template <Transport T>
MOELANE_HD void derive_bases(const Lane<T>& lane, const Output& out, Report& report) {
  const Shape& shape = lane.shape();
  const int me = lane.rank(), group_first = lane.group_first();
  std::int32_t *cursor = cursors_of(lane), *first = firsts_of(lane);
  const int plain = shape.experts + shape.ranks;
  for (int i = 0; i < plain; ++i) cursor[i] = first[i] = 0;
  for (int source = 0; source < shape.ranks; ++source) {
    const auto* words = lane.template own<const std::uint64_t>(lane.at.counts(source));
    for (int i = 0; i < plain; ++i) {
      const auto rows = static_cast<std::int32_t>(payload_of(words[i]));
      if (source < group_first) cursor[i] += rows;
      first[i] += rows;  // the total, for now
    }
  }
  const auto* own_experts = lane.placement.by_rank + lane.placement.first[me];
  std::int64_t rows = out.layout == Layout::ranked ? first[shape.experts + me] : 0;
  for (std::int32_t local = 0; local < lane.placement.local_experts(me) && out.layout != Layout::ranked;
       ++local) {
    rows += first[own_experts[local]];
  }
  write_counts(
      out, lane.placement.local_experts(me), rows,
      [&](std::int32_t local) { return std::int64_t{first[own_experts[local]]}; }, lane.placement, me,
      report);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::int64_t at = 0;
    for (std::int32_t i = lane.placement.first[rank]; i < lane.placement.first[rank + 1]; ++i) {
      const std::int32_t expert = lane.placement.by_rank[i];
      const std::int32_t total = first[expert];
      first[expert] = static_cast<std::int32_t>(at);
      if (out.layout == Layout::contiguous) at += aligned(total, out.alignment);
    }
  }
}

// The row of one token for one expert: place it, and write it there if this rank sends that token.
template <Team G, Transport T>
MOELANE_HD void dispatch_direct_rows(const G& team, const Lane<T>& lane, const Input& in, const Output& out,
                                     Report& report) {
  const Shape& shape = lane.shape();
  const std::int32_t topk = shape.topk;
  const Share share = lane.own_share(in.tokens);
  const bool ranked = out.layout == Layout::ranked;
  std::int32_t *cursor = cursors_of(lane), *first = firsts_of(lane);
  const auto* ids = lane.template own<const std::int32_t>(lane.at.own_ids());
  const auto* weights = lane.template own<const float>(lane.at.own_weights());
  auto* places = lane.template own<std::int32_t>(lane.at.own_places());
  RowCopies<G> copies(team, shape.row_bytes, in.scale_columns, in.scale_bytes, out.scales.column_stride);

  for (std::int32_t t = 0; t < in.tokens; ++t) {
    const std::int32_t* token_ids = ids + t * topk;
    const bool mine = t >= share.begin && t < share.begin + share.count;
    void** to = copies.to();
    int n = 0;
    for (std::int32_t k = 0; k < topk; ++k) {
      std::int32_t& place = places[t * topk + k];
      place = -1;
      const std::int32_t id = token_ids[k];
      if (id < 0) continue;
      const std::int32_t rank = lane.placement.rank_of[id], local = lane.placement.local_of[id];
      if (ranked && new_rank(lane.placement, token_ids, k) < 0) continue;
      const std::int32_t next = ranked ? cursor[shape.experts + rank]++ : first[id] + cursor[id]++;
      if (next >= out.capacity) continue;
      place = next;
      if (!mine) continue;
      // The same place in the peer's heap.
      const std::ptrdiff_t there = lane.transport.peer_pointer(rank) - lane.heap;
      if (in.scale_columns > 0) copies.scales_to()[n] = out.scales.at(local, place) + there;
      to[n++] = out.x.at(local, place) + there;
      for (std::int32_t j = 0; ranked && j < topk; ++j) {
        const std::int32_t here = local_on(lane.placement, token_ids[j], rank);
        *reinterpret_cast<std::int32_t*>(out.ids.at(place, j) + there) = here;
        *reinterpret_cast<float*>(out.weights.at(place, j) + there) = here < 0 ? 0.0F : weights[t * topk + j];
      }
    }
    if (n == 0) continue;
    copies.push(n, in.x.at(t), in.scales.at(t), in.scales.column_stride);
    report.bytes += static_cast<std::uint64_t>(n + 1) * static_cast<std::uint64_t>(shape.slot_bytes());
  }
  copies.flush();
}

// Ranked layout, when rows found no room: the (row, k) pairs of those that did, which no rank knew before.
template <Transport T>
MOELANE_HD void count_pairs(const Lane<T>& lane, const Output& out) {
  for (std::int32_t local = 0; local < lane.placement.local_experts(lane.rank()); ++local)
    out.expert_counts[local] = 0;
  for (std::int32_t row = 0; row < *out.row_count; ++row) {
    for (std::int32_t k = 0; k < lane.shape().topk; ++k) {
      const std::int32_t local = *reinterpret_cast<const std::int32_t*>(out.ids.at(row, k));
      if (local >= 0) ++out.expert_counts[local];
    }
  }
}

// The whole dispatch. Needs keep_routing before.
template <Team G, Transport T>
MOELANE_HD void dispatch_direct(const G& team, const Lane<T>& lane, const Input& in, const Output& out,
                                OutputPrint print, Report& report) {
  const LaneLayout& at = lane.at;
  publish_counts(team, lane, in.tokens, print);
  if (!await_counts(lane, print, report)) return;
  derive_bases(lane, out, report);
  dispatch_direct_rows(team, lane, in, out, report);
  team.publish();
  const std::uint64_t needed = pack(lane.state().epoch + 1, 0);
  lane.transport.signal_many(at.signal(Signal::dispatch, lane.rank()),
                             needed | dispatch_payload(WireWay::direct, in.tokens));
  for (int source = 0; source < lane.shape().ranks; ++source) {
    std::uint64_t word = 0;
    const Wait wait{at.signal(Signal::dispatch, source), needed, kEpochMask, source};
    if (!await(lane, wait, Phase::dispatch, word, report)) return;
  }
  if (out.layout == Layout::ranked && report.fault == Fault::overflow) count_pairs(lane, out);
  LaneState& state = lane.state();
  ++state.epoch;
  state.tokens = in.tokens;
  state.dropped = 0;
}

}  // namespace moelane
