#include "run/run_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "bench/arena_map.hpp"
#include "bench/card_floor.hpp"
#include "bench/cpu_floor.hpp"
#include "launch/failures.hpp"
#include "moelane/error.hpp"
#include "routing/placement_file.hpp"
#include "run/inject.hpp"
#include "run/progress.hpp"
#include "run/rank_context.hpp"
#include "run/timed_calls.hpp"

namespace moelane::tools {
namespace {

int floor_sets(const Options& options) { return std::min(2, options.steps); }

class Run {
 public:
  Run(const Options& options, const RoutingSource& routing, World world, RankReport& report)
      : options_(options),
        rank_(options, routing, std::move(world), options.config.in_flight, report),
        report_(report),
        progress_(options, rank_.rank()) {
    rank_.describe();
    CallMode mode;
    mode.accumulate = options_.accumulate;
    mode.graphs = mode.device_count = options_.graph;
    mode.aligned_start = !injects();  // a barrier would wait for the rank as well
    mode.events = !rank_.device.one_card();
    calls_.emplace(*rank_.engine, rank_.world, rank_.device, mode,
                   [this](const TraceEvent& event) { trace(event); });
    for (int lane = 0; lane < rank_.config.in_flight; ++lane) {
      calls_->add(lane, rank_.buffers_of(lane), options_.split);
    }
  }

  // Each lane does its first step once more, before: the system maps memory when it is first touched, which
  // is not the library's time. Results count all the same.
  void warm_up() {
    if (injects()) return;
    const RankReport before = report_;
    const int together = steps_together();
    for (int step = 0; step < std::min(rank_.config.in_flight, options_.steps); step += together) {
      run_steps(step, std::min(together, options_.steps - step));
    }
    if (report_.mismatches == 0) report_ = before;
  }

  void all_steps() {
    if (report_.mismatches != 0) return;
    const int together = steps_together();
    for (int step = 0; step < options_.steps; step += together) {
      run_steps(step, std::min(together, options_.steps - step));
      progress_.show(step + together);
    }
  }

  // The floor of the last steps' rows, one set of buffers for each lane.
  void floor(const Arena& arena) {
    const bool measured = rank_.device.on_card() ? !injects() : arena.base != nullptr;
    if (!measured || report_.mismatches != 0) return;
    std::vector<std::vector<GroupStep>> groups;
    for (int set = 0; set < floor_sets(options_); ++set) groups.push_back(rank_.step_of_all_groups(set));
    if (rank_.device.on_card()) {
      rank_.report_floor(measure_card_floor(rank_, groups));
    } else {
      const ArenaMap map(options_, rank_.placement.max_local_experts(), floor_sets(options_));
      rank_.report_floor(measure_cpu_floor({rank_, arena, map, groups, 3, true}));
    }
  }

 private:
  // A step that is under way.
  struct Step {
    int number, lane;
    std::vector<GroupStep> groups;
    std::vector<std::byte> old;
  };

  bool injects() const { return options_.injection.rank >= 0; }
  int steps_together() const { return options_.split ? rank_.config.in_flight : 1; }
  StepBuffers& buffers(const Step& s) { return rank_.buffers_of(s.lane); }

  // `count` steps, each on its lane; with split calls their halves interleave, as two micro-batches do.
  void run_steps(int first, int count) {
    std::vector<Step> steps;
    for (int number = first; number < first + count; ++number) {
      steps.push_back({number, rank_.lane_of(number), rank_.step_of_all_groups(number), {}});
    }
    for (Step& s : steps) buffers(s).in.load(rank_.device, rank_.config, rank_.own(s.groups));
    const auto end = static_cast<std::size_t>(first) + steps.size();
    report_.dispatch.resize(end);
    report_.combine.resize(end);
    rank_.world.barrier();
    for (const Step& s : steps) inject(rank_, s.number + 1);
    dispatch(steps);
    for (Step& s : steps) {
      rank_.fetch(s.lane);
      rank_.checks.dispatch(fmt::format("step {}", s.number + 1), s.groups, buffers(s));
      rank_.run_experts(s.lane);
      if (options_.accumulate) fill_output(s);
    }
    rank_.world.barrier();
    run_calls(combine_calls(options_.split), report_.combine, steps);
    for (const Step& s : steps) {
      rank_.device.download(buffers(s).out);
      rank_.checks.combine(fmt::format("step {}", s.number + 1), rank_.own(s.groups),
                           options_.accumulate ? s.old.data() : nullptr, buffers(s));
    }
  }

  void fill_output(Step& s) {
    s.old = rank_.workload.old_output(s.number, rank_.group());
    std::memcpy(buffers(s).out.host.data, s.old.data(), s.old.size());
    rank_.device.upload(buffers(s).out);
  }

  void dispatch(const std::vector<Step>& steps) {
    std::optional<Error> full;
    try {
      run_calls(dispatch_calls(options_.split), report_.dispatch, steps);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::capacity) throw;
      full = error;
    }
    // All stop together: nobody waits for a rank that has stopped.
    const char stops = full ? 1 : 0;
    std::vector<char> all(static_cast<std::size_t>(options_.ranks));
    rank_.world.all_gather(&stops, 1, all.data());
    if (full) throw *full;
    const auto other = std::find(all.begin(), all.end(), 1);
    if (other == all.end()) return;
    throw StoppedByPeer{fmt::format("rank {} stopped in step {}, as rank {} had too little --capacity",
                                    rank_.rank(), steps.front().number + 1, other - all.begin())};
  }

  // The calls of a phase, each on all lanes before the next.
  void run_calls(const std::vector<EngineCall>& calls, std::vector<std::vector<TimeSpan>>& spans,
                 const std::vector<Step>& steps) {
    for (const EngineCall call : calls) {
      for (const Step& s : steps) spans[static_cast<std::size_t>(s.number)].push_back(run_call(call, s));
    }
  }

  TimeSpan run_call(EngineCall call, const Step& s) {
    step_ = s.number;
    try {
      return calls_->run(call, s.lane);
    } catch (const Error& error) {
      // In words of the command line, too: the engine counts steps by lane.
      const bool full = error.kind() == ErrorKind::capacity;
      throw Error(error.kind(),
                  error.what() + (full ? fmt::format("; --capacity is {}", options_.capacity)
                                       : fmt::format("; this was step {} of the run", s.number + 1)));
    }
  }

  void trace(const TraceEvent& event) {
    rank_.count_bytes(event);
    if (options_.trace.empty()) return;
    report_.trace.push_back(
        {event.name, event.lane, step_ + 1, event.peer, event.begin_ns, event.end_ns, event.bytes});
  }

  const Options& options_;
  RankContext rank_;
  RankReport& report_;
  Progress progress_;
  std::optional<TimedCalls> calls_;  // of the engine, so they go first
  int step_ = 0;
};

}  // namespace

std::size_t run_arena_bytes(const Options& options) {
  if (options.injection.rank >= 0) return 0;  // its times mean nothing
  if (options.on_cards()) return 0;           // which have memory of their own
  const Placement placement = open_placement(options.placement, options.config.experts, options.ranks);
  return ArenaMap(options, placement.max_local_experts(), floor_sets(options)).bytes();
}

void run_rank(const Options& options, const RoutingSource& routing, World world, const Arena& arena,
              RankReport& report) {
  Run run(options, routing, std::move(world), report);
  run.warm_up();
  run.all_steps();
  run.floor(arena);
}

}  // namespace moelane::tools
