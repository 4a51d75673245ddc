#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda/arrays.hpp"
#include "engine/gpu/call_names.hpp"
#include "moelane/engine.hpp"

namespace moelane::gpu {

// When the blocks of a lane's calls did what: the last call of each kind on each lane, which may be replayed
// from a graph.
class Stamps {
 public:
  Stamps(int lanes, int blocks)
      : lanes_(static_cast<std::size_t>(lanes)),
        blocks_(static_cast<std::size_t>(blocks)),
        handed_(lanes_ * kCallKinds),
        stamps_(card_array<Stamp>(lanes_ * kCallKinds * blocks_)) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  }
  ~Stamps() { cudaStreamDestroy(stream_); }
  Stamps(const Stamps&) = delete;
  Stamps& operator=(const Stamps&) = delete;

  Stamp* of(int lane, CallKind call) const { return stamps_.get() + slot(lane, call) * blocks_; }

  // What finished since the last time.
  void hand_to(const std::function<void(const TraceEvent&)>& sink) {
    std::vector<Stamp> all(lanes_ * kCallKinds * blocks_);
    check(cudaMemcpyAsync(all.data(), stamps_.get(), all.size() * sizeof(Stamp), cudaMemcpyDeviceToHost,
                          stream_),
          "read time stamps");
    check(cudaStreamSynchronize(stream_), "read time stamps");
    std::vector<TraceEvent> events;
    for (int lane = 0; lane < static_cast<int>(lanes_); ++lane) {
      for (int c = 0; c < kCallKinds; ++c) {
        const auto call = static_cast<CallKind>(c);
        add(events, lane, name_of(call), all.data() + slot(lane, call) * blocks_, handed_[slot(lane, call)]);
      }
    }
    std::sort(events.begin(), events.end(),
              [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
    for (const TraceEvent& event : events) sink(event);
  }

 private:
  std::size_t slot(int lane, CallKind call) const {
    return static_cast<std::size_t>(lane) * kCallKinds + static_cast<std::size_t>(call);
  }

  // A call begins with its first block and ends with its last; so does the waiting within it, which is for
  // all peers.
  void add(std::vector<TraceEvent>& events, int lane, const char* name, const Stamp* blocks,
           std::uint64_t& handed) const {
    std::uint64_t step = handed;
    for (std::size_t b = 0; b < blocks_; ++b) step = std::max(step, blocks[b].step);
    if (step == handed) return;
    TraceEvent whole{name, lane, step, -1, INT64_MAX, 0, 0}, wait{"wait", lane, step, -1, INT64_MAX, 0, 0};
    for (std::size_t b = 0; b < blocks_; ++b) {
      const Stamp& s = blocks[b];
      if (s.step != step || s.end == 0) continue;
      whole.begin_ns = std::min(whole.begin_ns, static_cast<std::int64_t>(s.begin));
      whole.end_ns = std::max(whole.end_ns, static_cast<std::int64_t>(s.end));
      whole.bytes += s.bytes;
      if (s.wait_end == 0) continue;
      wait.begin_ns = std::min(wait.begin_ns, static_cast<std::int64_t>(s.wait_begin));
      wait.end_ns = std::max(wait.end_ns, static_cast<std::int64_t>(s.wait_end));
    }
    if (whole.end_ns == 0) return;  // it never came to its end
    handed = step;
    events.push_back(whole);
    if (wait.end_ns != 0) events.push_back(wait);
  }

  std::size_t lanes_, blocks_;
  std::vector<std::uint64_t> handed_;
  CardArray<Stamp> stamps_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace moelane::gpu
