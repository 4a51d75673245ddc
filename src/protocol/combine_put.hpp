#pragma once

#include "protocol/routing.hpp"

// Combine, put way: an expert's rank pushes every answer into the slot (token, k) of all ranks of the token's
// group; these sum. With one answer per token and rank (ranked layout, partial sums), k is the first that
// names the rank.
namespace moelane {

// Where the answers are read: the caller's expert rows, as dispatch_put_recv placed them.
struct Answers {
  ExpertRows rows;
  bool partial_sums = false;  // sum over this rank's experts before sending, rounded to bf16
  DType type = DType::bf16;
  std::int64_t hidden = 0;
};

// For one group: of how many rows of every expert (by_rank: in all) this rank sends the answers, to go with
// the combine signal. Returns whether some of the group's rows found no room.
template <Transport T>
MOELANE_HD bool count_kept(const Lane<T>& lane, int group_first, bool partial_sums) {
  const Shape& shape = lane.shape();
  const std::int32_t topk = shape.topk;
  auto* kept = lane.template own<std::int32_t>(lane.at.cursors());
  for (int i = 0; i < lane.at.kept_words(); ++i) kept[i] = 0;
  bool lost = false;
  for (int source = group_first; source < group_first + shape.tp; ++source) {
    const auto* ids = lane.template own<const std::int32_t>(lane.at.routing_ids(source));
    const auto* places = lane.template own<const std::int32_t>(lane.at.places(source));
    const std::uint64_t word =
        *lane.template own<const std::uint64_t>(lane.at.signal(Signal::dispatch, source));
    const std::int32_t count = share_of(tokens_of(word), shape.tp, source % shape.tp).count;
    for (std::int32_t i = 0; i < count * topk; ++i) {
      if (local_on(lane.placement, ids[i], lane.rank()) < 0) continue;
      // A partial sum is sent even if it is of no row; in the ranked layout only a rank's first k has a row.
      const bool answers = !shape.by_rank || new_rank(lane.placement, ids + i / topk * topk, i % topk) >= 0;
      if (places[i] < 0 && (answers || partial_sums)) lost = true;
      if (answers && (places[i] >= 0 || partial_sums)) ++kept[shape.by_rank ? 0 : ids[i]];
    }
  }
  return lost;
}

// Needs the lane's dispatch by the put way. Never waits.
template <Team G, Transport T>
MOELANE_HD void combine_put_send(const G& team, const Lane<T>& lane, const Answers& answers,
                                 std::uint64_t print, Report& report) {
  const Shape& shape = lane.shape();
  const LaneLayout& at = lane.at;
  const T& net = lane.transport;
  const int me = lane.rank();
  const std::int32_t topk = shape.topk;
  const auto bytes = static_cast<std::size_t>(shape.answer_bytes);
  RowCopies<G> copies(team, shape.answer_bytes);

  for (int source = 0; source < shape.ranks; ++source) {
    const int group_first = source / shape.tp * shape.tp;
    const auto* ids = lane.template own<const std::int32_t>(at.routing_ids(source));
    const auto* weights = lane.template own<const float>(at.routing_weights(source));
    const auto* places = lane.template own<const std::int32_t>(at.places(source));
    const std::uint64_t word = *lane.template own<const std::uint64_t>(at.signal(Signal::dispatch, source));
    const Share share = share_of(tokens_of(word), shape.tp, source % shape.tp);
    for (std::int32_t i = team.unit(); i < share.count; i += team.units()) {
      const std::int32_t* token_ids = ids + i * topk;
      bool summed = false;
      for (std::int32_t k = 0; k < topk; ++k) {
        const std::int32_t local = local_on(lane.placement, token_ids[k], me);
        const std::int32_t place = places[i * topk + k];
        if (local < 0 || summed || (place < 0 && !answers.partial_sums)) continue;
        const std::byte* from = nullptr;
        if (answers.partial_sums) {
          const void* rows[32];
          float scale[32];
          int n = 0;
          for (std::int32_t j = k; j < topk; ++j) {
            const std::int32_t here = local_on(lane.placement, token_ids[j], me);
            if (here < 0 || places[i * topk + j] < 0) continue;
            scale[n] = weights[i * topk + j];
            rows[n++] = answers.rows.at(here, places[i * topk + j]);
          }
          std::byte* stage = lane.heap + at.answer_stage(team.unit());
          team.sum(rows, scale, n, answers.type, answers.hidden, stage, DType::bf16, false);
          from = stage;
          summed = true;
        } else {
          from = answers.rows.at(local, place);
        }
        int nears = 0;
        for (int j = 0; j < shape.tp; ++j) {  // the own position in the group first: peers are spread
          const int peer = group_first + (me + j) % shape.tp;
          std::byte* base = net.peer_pointer(peer);
          if (base != nullptr) {
            copies.to()[nears++] = base + at.answer(share.begin + i, k);
            if (nears == 32) {
              copies.push(nears, from);
              nears = 0;
            }
          } else {
            net.put_signal(peer, at.answer(share.begin + i, k), from, bytes, at.signal(Signal::answers, me),
                           1, SignalOp::add);
          }
        }
        copies.push(nears, from);
        if (answers.partial_sums) copies.flush();  // the stage is used again
        report.bytes += static_cast<std::uint64_t>(shape.tp) * bytes;
        if (shape.by_rank) break;
      }
    }
  }

  copies.flush();
  team.publish();
  if (!team.last()) return;
  const auto word = [&](bool lost) {
    return pack(lane.state().epoch, combine_payload(WireWay::put, lost, print));
  };
  if (lane.state().dropped == 0) {
    net.signal_many(at.signal(Signal::combine, me), word(false));
    return;
  }
  for (int first = 0; first < shape.ranks; first += shape.tp) {
    const bool lost = count_kept(lane, first, answers.partial_sums);
    const std::size_t kept_bytes = lost ? static_cast<std::size_t>(at.kept_words()) * 4 : 0;
    for (int peer = first; peer < first + shape.tp; ++peer) {
      net.put_signal(peer, at.kept(me), lane.heap + at.cursors(), kept_bytes, at.signal(Signal::combine, me),
                     word(lost), SignalOp::set);
    }
  }
}

// How many answers `source` sends to this rank for its group's tokens, when it kept all or what `kept` says.
template <Transport T>
MOELANE_HD std::uint64_t answers_from(const Lane<T>& lane, int source, const std::int32_t* kept) {
  const Shape& shape = lane.shape();
  std::uint64_t n = 0;
  if (kept != nullptr) {
    for (int i = 0; i < lane.at.kept_words(); ++i) {
      if (shape.by_rank || lane.placement.rank_of[i] == source) n += static_cast<std::uint64_t>(kept[i]);
    }
    return n;
  }
  const auto* ids = lane.template own<const std::int32_t>(lane.at.own_ids());
  for (std::int32_t t = 0; t < lane.state().tokens; ++t) {
    for (std::int32_t k = 0; k < shape.topk; ++k) {
      const std::int32_t* token_ids = ids + t * shape.topk;
      if (token_ids[k] < 0 || lane.placement.rank_of[token_ids[k]] != source) continue;
      if (!shape.by_rank || new_rank(lane.placement, token_ids, k) == source) ++n;
    }
  }
  return n;
}

// Waits for every rank's combine signal. `dropped` tells whether some rank had no room for rows of this
// group.
template <Transport T>
MOELANE_HD bool await_combine(const Lane<T>& lane, WireWay way, std::uint64_t print, bool& dropped,
                              Report& report) {
  const LaneLayout& at = lane.at;
  const std::uint64_t needed = pack(lane.state().epoch, 0);
  dropped = false;
  for (int source = 0; source < lane.shape().ranks; ++source) {
    std::uint64_t word = 0;
    const Wait wait{at.signal(Signal::combine, source), needed, kEpochMask, source};
    if (!await(lane, wait, Phase::combine, word, report)) return false;
    if (way_of(word) != way) return refuse(report, Fault::other_way, Phase::combine, source, word, needed);
    if ((word & kFingerprintMask) != (print & kFingerprintMask)) {
      return refuse(report, Fault::other_tensor, Phase::combine, source, word & kFingerprintMask,
                    print & kFingerprintMask);
    }
    if ((word & kDroppedBit) != 0) {
      dropped = true;
      if (report.fault == Fault::none) {
        report.fault = Fault::dropped;
        report.peer = source;
      }
    }
  }
  return true;
}

// Which of the own rows found no room; for the rare step in which some did not. Sets their own_places to -1,
// all others to 0.
template <Transport T>
MOELANE_HD void mark_dropped(const Lane<T>& lane) {
  const Shape& shape = lane.shape();
  const LaneLayout& at = lane.at;
  const auto* ids = lane.template own<const std::int32_t>(at.own_ids());
  auto* places = lane.template own<std::int32_t>(at.own_places());
  std::int32_t* running = cursors_of(lane);
  for (int i = 0; i < shape.experts + shape.ranks; ++i) running[i] = 0;
  for (std::int32_t t = 0; t < lane.state().tokens; ++t) {
    for (std::int32_t k = 0; k < shape.topk; ++k) {
      std::int32_t& place = places[t * shape.topk + k];
      place = 0;
      const std::int32_t id = ids[t * shape.topk + k];
      if (id < 0) continue;
      const int rank = lane.placement.rank_of[id];
      if (shape.by_rank && new_rank(lane.placement, ids + t * shape.topk, k) < 0) continue;
      const std::uint64_t word = *lane.template own<const std::uint64_t>(at.signal(Signal::combine, rank));
      if ((word & kDroppedBit) == 0) continue;
      const auto* kept = lane.template own<const std::int32_t>(at.kept(rank));
      const bool here = shape.by_rank ? running[shape.experts + rank]++ < kept[0] : running[id]++ < kept[id];
      if (!here) place = -1;
    }
  }
}

template <Team G, Transport T>
MOELANE_HD void combine_put_recv(const G& team, const Lane<T>& lane, const CombineOutput& out,
                                 std::uint64_t print, Report& report) {
  const Shape& shape = lane.shape();
  const LaneLayout& at = lane.at;
  const std::int32_t topk = shape.topk;
  bool dropped = false;
  if (!await_combine(lane, WireWay::put, print, dropped, report)) return;
  for (int source = 0; source < shape.ranks; ++source) {
    if (lane.transport.peer_pointer(source) != nullptr) continue;
    const std::uint64_t signalled =
        *lane.template own<const std::uint64_t>(at.signal(Signal::combine, source));
    const auto* kept =
        (signalled & kDroppedBit) != 0 ? lane.template own<const std::int32_t>(at.kept(source)) : nullptr;
    auto& expected = *lane.template own<std::uint64_t>(at.expected(1, source));
    expected += answers_from(lane, source, kept);
    std::uint64_t word = 0;
    if (!await(lane, {at.signal(Signal::answers, source), expected, kCounterMask, source}, Phase::answers,
               word, report)) {
      return;
    }
  }
  if (dropped && team.leader()) mark_dropped(lane);
  team.barrier();

  const auto* ids = lane.template own<const std::int32_t>(at.own_ids());
  const auto* weights = lane.template own<const float>(at.own_weights());
  const auto* places = lane.template own<const std::int32_t>(at.own_places());
  for (std::int32_t t = team.unit(); t < lane.state().tokens; t += team.units()) {
    const void* rows[32];
    float scale[32];
    int n = 0;
    for (std::int32_t k = 0; k < topk; ++k) {
      const std::int32_t* token_ids = ids + t * topk;
      if (token_ids[k] < 0 || (dropped && places[t * topk + k] < 0)) continue;
      if (shape.by_rank && new_rank(lane.placement, token_ids, k) < 0) continue;
      scale[n] = shape.by_rank ? 1.0F : weights[t * topk + k];
      rows[n++] = lane.heap + at.answer(t, k);
    }
    team.sum(rows, scale, n, out.in_type, out.hidden, out.out.at(t), out.out_type, out.accumulate);
    report.bytes += static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(shape.answer_bytes) +
                    static_cast<std::uint64_t>(out.hidden) * size_of(out.out_type);
  }
}

}  // namespace moelane
