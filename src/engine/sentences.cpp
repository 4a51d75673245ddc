#include "engine/sentences.hpp"

#include <fmt/format.h>

#include "core/farewell.hpp"
#include "core/signal.hpp"

namespace moelane {
namespace {

const char* text_of(Phase phase) {
  switch (phase) {
    case Phase::none:
      return "none";
    case Phase::counts:
      return "counts";
    case Phase::dispatch:
      return "dispatch";
    case Phase::rows:
      return "dispatched rows";
    case Phase::combine:
      return "combine";
    case Phase::answers:
      return "answers";
  }
  return "?";
}

std::string seen_and_needed(const Report& r) {
  if (r.phase == Phase::rows || r.phase == Phase::answers) {
    return fmt::format("saw {} rows, needed {}", r.seen, r.needed);
  }
  return fmt::format("saw step {}, needed step {}", epoch_of(r.seen), epoch_of(r.needed));
}

std::string farewell_text(std::uint64_t word) {
  switch (leaving_of(word)) {
    case Leaving::not_yet:
      return "left the world";
    case Leaving::closed:
      return "closed its engine";
    case Leaving::aborted:
      return "aborted";
    case Leaving::failed:
      return blamed_of(word) < 0 ? "failed" : fmt::format("failed over rank {}", blamed_of(word));
  }
  return "left the world";
}

const char* way_text(WireWay way) {
  return way == WireWay::put ? "put" : way == WireWay::direct ? "direct" : "no";
}

}  // namespace

Error error_of(const Report& r, const CallSite& site, const Config& config) {
  const std::string where = fmt::format("phase {}, step {}, lane {}", text_of(r.phase), site.step, site.lane);
  const std::string who = fmt::format("rank {} in {}", site.rank, site.call);
  switch (r.fault) {
    case Fault::timed_out:
      return Error(ErrorKind::timeout, fmt::format("{} waited {:g} s for rank {} ({}): {}", who, site.timeout,
                                                   r.peer, where, seen_and_needed(r)));
    case Fault::peer_left:
      return Error(ErrorKind::aborted, fmt::format("{} waited for rank {} ({}), which {}: {}", who, r.peer,
                                                   where, farewell_text(site.farewell), seen_and_needed(r)));
    case Fault::aborted:
      return Error(ErrorKind::aborted, fmt::format("{} was aborted while it waited for rank {} ({}): {}", who,
                                                   r.peer, where, seen_and_needed(r)));
    case Fault::other_way:
      return Error(
          ErrorKind::mismatch,
          fmt::format("{} and rank {} take different ways ({}; its word says {}): every rank must make the "
                      "same kind of call, whole or split, on a lane",
                      who, r.peer, where, way_text(way_of(r.seen))));
    case Fault::other_placement:
      return Error(
          ErrorKind::mismatch,
          fmt::format("{} and rank {} work with different placements ({}; fingerprints {:x} and {:x}): "
                      "set_placement takes the same table on every rank between the same two steps",
                      who, r.peer, where, r.needed, r.seen));
    case Fault::other_tokens:
      return Error(
          ErrorKind::mismatch,
          fmt::format("{} heard from rank {} of {} tokens ({}), allowed are 0 to {} and the same for all "
                      "{} ranks of a DP group, whose first brings {}",
                      who, r.peer, r.seen, where, config.max_tokens, config.tp_size, r.needed));
    case Fault::other_tensor:
      return Error(
          ErrorKind::mismatch,
          fmt::format("{} and rank {} use symmetric tensors that differ in offset, strides or capacity ({}; "
                      "prints {:x} and {:x}): every rank allocates the same shapes in the same order",
                      who, r.peer, where, r.needed, r.seen));
    case Fault::bad_id:
      return Error(ErrorKind::argument, fmt::format("topk_ids[{}, {}] is {}, allowed are -1 to {}", r.token,
                                                    r.k, r.value, r.limit - 1));
    case Fault::bad_tokens:
      return Error(ErrorKind::argument,
                   fmt::format("num_tokens is {}, allowed is 0 to {}", r.value, r.limit));
    case Fault::overflow:
      if (config.layout == Layout::padded) {
        return Error(
            ErrorKind::capacity,
            fmt::format(
                "{} (step {}, lane {}) has capacity for {} rows of each expert, and expert {} got {}: "
                "the step is invalid, rows past the capacity were dropped; give x more rows in "
                "dimension 1",
                who, site.step, site.lane, r.limit, r.expert, r.value));
      }
      return Error(
          ErrorKind::capacity,
          fmt::format("{} (step {}, lane {}) has capacity for {} rows and needs {}{}: the step is invalid, "
                      "rows past the capacity were dropped; give x more rows in dimension 0",
                      who, site.step, site.lane, r.limit, r.value,
                      config.layout == Layout::contiguous
                          ? fmt::format(" (every expert at a multiple of {}; expert {} is the first to lack "
                                        "some)",
                                        config.alignment, r.expert)
                          : ""));
    case Fault::dropped:
      return Error(
          ErrorKind::capacity,
          fmt::format(
              "{} (step {}, lane {}) lost rows at rank {}, whose output had no capacity for them: the "
              "step is invalid",
              who, site.step, site.lane, r.peer));
    case Fault::none:
      break;
  }
  return Error(ErrorKind::transport, fmt::format("{} failed in a way that has no name ({})", who, where));
}

}  // namespace moelane
