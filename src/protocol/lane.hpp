#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "core/layout.hpp"
#include "core/signal.hpp"
#include "protocol/report.hpp"
#include "protocol/views.hpp"
#include "transport/transport.hpp"

// The protocol: dispatch and combine on one lane of one rank. The rule that keeps slots safe, and its proof:
//
//   On a lane, both sends signal every rank, also with nothing to send, and both recvs wait for every rank's
//   signal.
//
//   (a) Dispatch slots. Rank a writes slots of rank b in dispatch n+1. Before, a received combine n from b,
//   which b
//       signalled in combine_send n, after its dispatch_recv n had copied every slot out (put), and after it
//       had read the routing that lies beside them. So a writes what b no longer reads.
//   (b) Answer slots. Rank a writes answers of rank b in combine n+1. Before, a received dispatch n+1 from b,
//   which b
//       signalled after its combine_recv n had summed every answer.
//   (c) Outputs of the direct way. Rank a writes rows into b's output in dispatch n+1 only after b's counts
//   n+1, which
//       b publishes when its caller calls dispatch n+1 and so no longer needs the old rows.
//   (d) Expert rows of the direct way. Rank a reads b's expert rows in combine n and then signals dispatch
//   n+1 (or its
//       counts); b's caller may change them once dispatch n+1 has been received, which waits for that signal
//       of a.
//   (e) Counts of the direct way. a overwrites its counts at b in dispatch n+1, after combine n from b, which
//   b
//       signalled after dispatch n had read them.
//   Signals themselves only grow, so none is ever overwritten by an older one, and none is reset.
namespace moelane {

// Those who do the work of one rank: one CPU thread, or the blocks of a kernel. `unit`s share rows among
// themselves.
template <class G>
concept Team = requires(const G& g, void* to, void* const* many, const void* from, std::size_t bytes, int n,
                        const void* const* rows, const float* weights, DType type, std::int64_t hidden,
                        bool old) {
  { g.unit() } -> std::convertible_to<int>;
  { g.units() } -> std::convertible_to<int>;
  { g.leader() } -> std::convertible_to<bool>;  // one thread of all: does what is not worth sharing
  {g.barrier()};                                // all units; writes before are seen after
  {
    g.last()
    } -> std::convertible_to<bool>;  // true for the last unit to come here, which then sees all writes
  {g.copy(to, from, bytes)};
  {g.copy_many(many, n, from, bytes)};  // one source, read once
  {g.prefetch(from)};                   // a source that will be copied soon
  // to = sum over n rows by the arithmetic of the job: see cpu::weighted_sum.
  {g.sum(rows, weights, n, type, hidden, to, type, old)};
  {g.publish()};  // before a signal: makes streaming stores visible in order
};

// Copies scales of one token between strided places, element by element unless both are packed.
template <Team G>
MOELANE_HD void copy_scales(const G& team, std::byte* to, std::int64_t to_stride, const std::byte* from,
                            std::int64_t from_stride, std::int32_t columns, std::int32_t bytes) {
  if (columns == 0) return;
  if (to_stride == bytes && from_stride == bytes) {
    team.copy(to, from, static_cast<std::size_t>(columns) * static_cast<std::size_t>(bytes));
    return;
  }
  for (std::int32_t c = 0; c < columns; ++c) {
    for (std::int32_t b = 0; b < bytes; ++b) to[c * to_stride + b] = from[c * from_stride + b];
  }
}

// Copies of one row, and its scales if it has any, to several destinations, one row behind: while a row is
// copied, the next one's first bytes and the lines that its scales will go to are on their way from memory.
// Rows lie scattered, so no hardware prefetcher finds them.
template <Team G>
class RowCopies {
 public:
  // `scale_stride`: bytes from one scale to the next at the destinations.
  MOELANE_HD explicit RowCopies(const G& team, std::int64_t bytes, std::int32_t scale_columns = 0,
                                std::int32_t scale_bytes = 0, std::int64_t scale_stride = 0)
      : team_(team),
        bytes_(static_cast<std::size_t>(bytes)),
        scale_stride_(scale_stride),
        columns_(scale_columns),
        scale_bytes_(scale_bytes) {}

  // The destinations of the next row and of its scales, at most 32; then push their number and the sources.
  MOELANE_HD void** to() { return jobs_[next_].to; }
  MOELANE_HD std::byte** scales_to() { return jobs_[next_].scales_to; }
  MOELANE_HD void push(int n, const void* from, const std::byte* scales = nullptr,
                       std::int64_t scale_stride = 0) {
    if (n == 0) return;
    Job& job = jobs_[next_];
    job.n = n;
    job.from = from;
    job.scales = scales;
    job.scale_stride = scale_stride;
    team_.prefetch(from);
    for (int i = 0; columns_ > 0 && i < n; ++i) {
      team_.prefetch_write(job.scales_to[i], scale_stride_ == scale_bytes_ ? columns_ * scale_bytes_ : 1);
    }
    flush();
    next_ = 1 - next_;
  }
  MOELANE_HD void flush() {
    Job& job = jobs_[1 - next_];
    if (job.n > 0) team_.copy_many(job.to, job.n, job.from, bytes_);
    for (int i = 0; columns_ > 0 && i < job.n; ++i) {
      copy_scales(team_, job.scales_to[i], scale_stride_, job.scales, job.scale_stride, columns_,
                  scale_bytes_);
    }
    job.n = 0;
  }

 private:
  struct Job {
    void* to[32];
    std::byte* scales_to[32];
    const void* from;
    const std::byte* scales;
    std::int64_t scale_stride;
    int n = 0;
  };
  const G& team_;
  std::size_t bytes_;
  std::int64_t scale_stride_;
  std::int32_t columns_, scale_bytes_;
  Job jobs_[2];
  int next_ = 0;
};

template <Transport T>
struct Lane {
  T transport;
  LaneLayout at;
  PlacementView placement;
  std::byte* heap;  // own

  template <class X>
  MOELANE_HD X* own(std::uint64_t offset) const {
    return reinterpret_cast<X*>(heap + offset);
  }
  MOELANE_HD LaneState& state() const { return *own<LaneState>(at.state()); }
  MOELANE_HD const Shape& shape() const { return at.shape(); }
  MOELANE_HD int rank() const { return at.shape().rank; }
  MOELANE_HD int group_first() const { return rank() / shape().tp * shape().tp; }
  MOELANE_HD Share own_share(std::int32_t m) const { return share_of(m, shape().tp, rank() % shape().tp); }
};

// Waits for one source's word and fills `report` if it does not come. `phase` names it in sentences.
template <Transport T>
MOELANE_HD bool await(const Lane<T>& lane, const Wait& wait, Phase phase, std::uint64_t& word,
                      Report& report) {
  const Seen seen = lane.transport.wait_until(wait);
  word = seen.word;
  if (seen.outcome == Outcome::reached) return true;
  switch (seen.outcome) {
    case Outcome::timed_out:
      report.fault = Fault::timed_out;
      break;
    case Outcome::peer_left:
      report.fault = Fault::peer_left;
      break;
    case Outcome::contradicted:
      report.fault = Fault::other_way;
      break;
    default:
      report.fault = Fault::aborted;
  }
  report.phase = phase;
  report.peer = wait.peer;
  report.seen = seen.word;
  report.needed = wait.needed;
  if (seen.outcome ==
      Outcome::contradicted) {  // the awaited word knows nothing of the way that the peer took
    report.seen = pack(epoch_of(wait.needed),
                       dispatch_payload(phase == Phase::counts ? WireWay::put : WireWay::direct, 0));
  }
  return false;
}

MOELANE_HD inline bool refuse(Report& report, Fault fault, Phase phase, int peer, std::uint64_t seen,
                              std::uint64_t needed) {
  report.fault = fault;
  report.phase = phase;
  report.peer = peer;
  report.seen = seen;
  report.needed = needed;
  return false;
}

// The running numbers of rows, one for each expert (by_rank: for each rank, behind the experts), and the
// first row of each expert in its rank's output.
template <Transport T>
MOELANE_HD std::int32_t* cursors_of(const Lane<T>& lane) {
  return lane.template own<std::int32_t>(lane.at.cursors());
}
template <Transport T>
MOELANE_HD std::int32_t* firsts_of(const Lane<T>& lane) {
  return cursors_of(lane) + lane.shape().experts + lane.shape().ranks;
}

}  // namespace moelane
