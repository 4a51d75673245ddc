#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "run/step_buffers.hpp"
#include "run/timing.hpp"

namespace moelane::tools {

enum class EngineCall : std::uint8_t {
  dispatch,
  dispatch_send,
  dispatch_recv,
  combine,
  combine_send,
  combine_recv
};

// The calls of a step's phase, in order.
std::vector<EngineCall> dispatch_calls(bool split);
std::vector<EngineCall> combine_calls(bool split);

// How a rank's calls are made on a card; CPU ranks take notice of `accumulate` alone.
struct CallMode {
  bool accumulate = false;
  bool graphs = false;         // captured beforehand, and replayed
  bool device_count = false;   // graphs serve steps of any number of tokens
  bool aligned_start = false;  // a barrier on the stream before each call, so that all ranks start at once
  bool events = false;         // timed by events around the call; otherwise by the stamps of its kernels
};

// An engine's calls on sets of buffers, each finished when it returns, and timed: CPU ranks by
// CLOCK_MONOTONIC, ranks on a card by its own clock.
class TimedCalls {
 public:
  using Observer = std::function<void(const TraceEvent&)>;

  // `observer` is told every phase and wait: it takes the engine's trace. Without it nothing is stamped.
  TimedCalls(Engine& engine, World& world, const RankDevice& device, CallMode mode, Observer observer);
  ~TimedCalls();
  TimedCalls(const TimedCalls&) = delete;
  TimedCalls& operator=(const TimedCalls&) = delete;

  // Sets are numbered in this order; `buffers` must stay. With graphs, inputs must have been loaded, unless
  // `device_count` is set; no rank may be within a call.
  void add(int lane, const StepBuffers& buffers, bool split);

  TimeSpan run(EngineCall call, int set);
  // Puts a call on the stream, without a graph, and leaves it there: the host's microseconds for that.
  double launch_us(EngineCall call, int set);

 private:
  struct Set {
    int lane;
    const StepBuffers* buffers;
    std::array<gpu::Graph, 6> graphs;  // by EngineCall
  };

  void enqueue(EngineCall call, const Set& set);
  void enqueue_timed(EngineCall call, const Set& set);
  void note(const TraceEvent& event);

  Engine& engine_;
  World& world_;
  const RankDevice& device_;
  CallMode mode_;
  Observer observer_;
  std::vector<Set> sets_;
  std::optional<gpu::Stopwatch> watch_;  // on a card
  TimeSpan stamps_;                      // of the call that is being made
};

}  // namespace moelane::tools
