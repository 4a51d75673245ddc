#pragma once

#include <cstddef>
#include <cstdint>

#include "core/hd.hpp"
#include "moelane/config.hpp"

// Who writes which byte of a rank's heap: one home for sizes and offsets, on host and device. All ranks have
// the same layout; a byte is named by its offset in the heap, whichever rank's heap it is.
//
//   heap = control | lane 0 | lane 1 | ... ; lane = bell, signals, state | arrays | slots | answers |
//   symmetric tensors
namespace moelane {

// The numbers that fix the layout and the loops; trivially copyable, passed to kernels by value.
struct Shape {
  std::int32_t ranks = 0, rank = 0, tp = 1, experts = 0, topk = 0, max_tokens = 0, lanes = 0;
  std::int32_t share = 0;         // most tokens that one rank sends for its group: ceil(max_tokens / tp)
  std::int64_t row_bytes = 0;     // a dispatched row without its scales
  std::int64_t scale_bytes = 0;   // its scales, packed
  std::int64_t answer_bytes = 0;  // a row on its way back
  std::int64_t symmetric_bytes = 0;
  bool put = true, direct = true;  // which ways have memory here
  bool weights = false;            // weights travel with the routing (ranked layout, partial sums)
  bool staged = false;             // rows are staged once for puts
  bool by_rank = false;  // combine takes one answer per token and rank (ranked layout, partial sums)

  // A slot: row, scales behind it at a 16-byte boundary.
  MOELANE_HD std::int64_t scale_offset() const { return (row_bytes + 15) / 16 * 16; }
  MOELANE_HD std::int64_t slot_bytes() const {
    return scale_bytes == 0 ? row_bytes : scale_offset() + scale_bytes;
  }
};

// The tokens of a group that its rank number `j` of `tp` sends, of `m`: [begin, begin + count), in order of
// j.
struct Share {
  std::int32_t begin, count;
};
MOELANE_HD constexpr Share share_of(std::int32_t m, std::int32_t tp, std::int32_t j) {
  const std::int32_t each = (m + tp - 1) / tp;
  const std::int32_t begin = each * j < m ? each * j : m;
  return {begin, each < m - begin ? each : m - begin};
}

// One signal word for each source rank, of each kind.
enum class Signal : std::int32_t {
  counts,    // direct: the source's counts are here, and it may be written to
  dispatch,  // the source's rows are here (put: or on their way, see rows)
  combine,   // put: the source's answers are here; direct: its expert rows may be read
  rows,      // put without addressable heap: counter of rows
  answers,   // put without addressable heap: counter of answers
};
inline constexpr int kSignals = 5;
// Direct: who writes rows side by side (the blocks of a kernel) signals side by side. The first signals as
// `dispatch`, the others have words of their own.
inline constexpr int kMaxUnits = 256;

// Behind a source's counts: its group's tokens, how many units will signal, and what must be equal on both
// sides before anybody writes.
enum class CountWord : std::int32_t { tokens, units, placement_low, placement_high, output_low, output_high };
inline constexpr int kCountWords = 6;

// What a lane remembers; private to its rank. The epoch counts the lane's steps.
struct LaneState {
  std::uint64_t epoch = 0;
  std::int32_t tokens = 0;    // m of this rank's group in this step
  std::int32_t dropped = 0;   // put: whether this rank had no room for some rows in this step
  std::int32_t received = 0;  // put, GPU: entries of received()
};

// In front of the ids that a source sends with its rows.
struct RoutingHeader {
  std::uint64_t fingerprint;  // of the placement it used
  std::uint64_t unused;
};

class LaneLayout {
 public:
  // The layout of lane `lane`; offsets from the start of the heap.
  MOELANE_HD explicit LaneLayout(const Shape& shape, int lane = 0);

  // Written by peers: signals.
  MOELANE_HD std::uint64_t bell() const { return begin_; }
  MOELANE_HD std::uint64_t signal(Signal kind, int source) const {
    return signals_ + (static_cast<std::uint64_t>(kind) * u(shape_.ranks) + u(source)) * 8;
  }
  // The signal of unit `unit` of a source, of those that write rows of a direct dispatch.
  MOELANE_HD std::uint64_t written(int source, int unit) const {
    return unit == 0 ? signal(Signal::dispatch, source)
                     : written_ + (u(source) * (kMaxUnits - 1) + u(unit - 1)) * 8;
  }
  // Written by peers: 64-bit words (epoch, 24 bits): rows for each expert, rows for each rank, and CountWord.
  // Put, GPU: with the routing, and only the words of this rank and its experts.
  MOELANE_HD std::uint64_t counts(int source) const { return counts_ + u(source) * u(count_words()) * 8; }
  MOELANE_HD int count_words() const { return shape_.experts + shape_.ranks + kCountWords; }
  // Written by peers, put: RoutingHeader, int32 ids [share, topk], fp32 weights [share, topk] where they
  // travel.
  MOELANE_HD std::uint64_t routing(int source) const { return routing_ + u(source) * routing_stride_; }
  MOELANE_HD std::uint64_t routing_ids(int source) const { return routing(source) + sizeof(RoutingHeader); }
  MOELANE_HD std::uint64_t routing_weights(int source) const { return routing_ids(source) + ids_bytes_; }
  MOELANE_HD std::uint64_t slot(int source, int token) const {
    return slots_ + (u(source) * u(shape_.share) + u(token)) * slot_stride_;
  }
  // Written by peers, put: the answer for a token of the own group and its k-th expert, and, only where a
  // rank had to drop rows, how many rows of each expert (by_rank: in [rank]) it kept for this group.
  MOELANE_HD std::uint64_t answer(int token, int k) const {
    return answers_ + (u(token) * u(shape_.topk) + u(k)) * answer_stride_;
  }
  MOELANE_HD std::uint64_t kept(int source) const { return kept_ + u(source) * u(kept_words()) * 4; }
  MOELANE_HD int kept_words() const { return shape_.by_rank ? 1 : shape_.experts; }

  // Private: state, own routing (ids and weights of the whole group), where its rows lie, where received rows
  // lie.
  MOELANE_HD std::uint64_t state() const { return state_; }
  MOELANE_HD std::uint64_t expected(int which,
                                    int source) const {  // counters' next values: 0 rows, 1 answers
    return expected_ + (u(which) * u(shape_.ranks) + u(source)) * 8;
  }
  MOELANE_HD std::uint64_t own_counts() const { return own_counts_; }
  // int32: a running number for each expert (by_rank: each rank behind them), then as many first rows.
  MOELANE_HD std::uint64_t cursors() const { return cursors_; }
  MOELANE_HD std::uint64_t own_routing() const { return own_routing_; }  // as routing(), for max_tokens
  MOELANE_HD std::uint64_t own_ids() const { return own_ids_; }
  MOELANE_HD std::uint64_t own_weights() const { return own_weights_; }
  MOELANE_HD std::uint64_t own_places() const { return own_places_; }
  MOELANE_HD std::uint64_t places(int source) const { return places_ + u(source) * ids_bytes_; }
  // GPU: the (source, token, k) whose rows have a place here, as (source * share + token) * topk + k in this
  // order.
  MOELANE_HD std::uint64_t received() const { return received_; }
  MOELANE_HD std::uint64_t stage(int token) const { return stage_ + u(token) * slot_stride_; }
  // GPU: the slots behind it belong to it while answers are sent (gpu/far.cuh).
  MOELANE_HD std::uint64_t answer_stage(int unit) const { return answer_stage_ + u(unit) * answer_stride_; }

  // The caller's symmetric tensors of this lane.
  MOELANE_HD std::uint64_t symmetric() const { return symmetric_; }
  MOELANE_HD std::uint64_t own_end() const { return symmetric_; }
  MOELANE_HD std::uint64_t end() const { return end_; }

  // Sent with the signal of a source's dispatch: header and ids (and weights) of `tokens` tokens are at most
  // this.
  MOELANE_HD std::uint64_t routing_bytes() const { return routing_stride_; }
  MOELANE_HD const Shape& shape() const { return shape_; }

 private:
  MOELANE_HD static constexpr std::uint64_t u(std::int64_t value) {
    return static_cast<std::uint64_t>(value);
  }
  MOELANE_HD std::uint64_t take(std::uint64_t& at, std::uint64_t bytes, std::uint64_t alignment = 64) const {
    at = (at + alignment - 1) / alignment * alignment;
    const std::uint64_t start = at;
    at += bytes;
    return start;
  }

  Shape shape_;
  std::uint64_t begin_, signals_, written_, state_, expected_, counts_, own_counts_, cursors_, kept_,
      routing_, own_routing_, own_ids_, own_weights_, own_places_, places_, received_, stage_, answer_stage_,
      slots_, answers_, symmetric_, end_;
  std::uint64_t ids_bytes_, routing_stride_, slot_stride_, answer_stride_;
};

// The whole heap: a control page (a farewell word for each rank), then the lanes.
MOELANE_HD constexpr std::uint64_t control_bytes(int ranks) {
  return (static_cast<std::uint64_t>(ranks) * 8 + 4095) / 4096 * 4096;
}
MOELANE_HD constexpr std::uint64_t farewell(int source) { return static_cast<std::uint64_t>(source) * 8; }

Shape shape_of(const Config& config, int ranks, int rank);

MOELANE_HD inline LaneLayout::LaneLayout(const Shape& s, int lane) : shape_(s) {
  const std::uint64_t routed = u(s.put ? s.ranks : 0), share = u(s.share), k = u(s.topk), m = u(s.max_tokens);
  ids_bytes_ = share * k * 4;
  routing_stride_ = (sizeof(RoutingHeader) + ids_bytes_ * (s.weights ? 2 : 1) + 63) / 64 * 64;
  slot_stride_ = (u(s.slot_bytes()) + 63) / 64 * 64;
  answer_stride_ = (u(s.answer_bytes) + 63) / 64 * 64;

  std::uint64_t at = 0;
  const std::uint64_t bell = take(at, 64);
  signals_ = take(at, u(kSignals) * u(s.ranks) * 8);
  written_ = take(at, s.direct ? u(s.ranks) * (kMaxUnits - 1) * 8 : 0);
  state_ = take(at, sizeof(LaneState));
  expected_ = take(at, 2 * u(s.ranks) * 8);
  counts_ = take(at, u(s.ranks) * u(count_words()) * 8);
  own_counts_ = take(at, u(count_words()) * 8);
  cursors_ = take(at, u(s.experts + s.ranks) * 8);
  kept_ = take(at, routed * u(kept_words()) * 4);
  own_routing_ = take(at, sizeof(RoutingHeader));
  own_ids_ = take(at, m * k * 4, 4);
  own_weights_ = take(at, m * k * 4, 4);
  own_places_ = take(at, m * k * 4);
  places_ = take(at, routed * ids_bytes_);
  received_ = take(at, routed * ids_bytes_);
  routing_ = take(at, routed * routing_stride_);
  stage_ = take(at, s.staged ? share * slot_stride_ : 0, 256);
  answer_stage_ = take(at, s.put && (s.by_rank || s.staged) ? answer_stride_ : 0, 256);
  slots_ = take(at, routed * share * slot_stride_, 256);
  answers_ = take(at, s.put ? m * k * answer_stride_ : 0, 256);
  symmetric_ = take(at, u(s.symmetric_bytes), 4096);
  end_ = take(at, 0, 4096);

  begin_ = control_bytes(s.ranks) + u(lane) * end_;
  for (std::uint64_t* offset :
       {&signals_, &written_,     &state_,        &expected_,    &counts_,     &own_counts_, &cursors_,
        &kept_,    &own_routing_, &own_ids_,      &own_weights_, &own_places_, &places_,     &received_,
        &routing_, &stage_,       &answer_stage_, &slots_,       &answers_,    &symmetric_,  &end_}) {
    *offset += begin_;
  }
  begin_ += bell;
}

}  // namespace moelane
