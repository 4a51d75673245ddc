#include "bench/bench_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/arena_map.hpp"
#include "bench/baseline.hpp"
#include "bench/buffer_sets.hpp"
#include "bench/card_call_times.hpp"
#include "bench/card_floor.hpp"
#include "bench/cpu_floor.hpp"
#include "moelane/error.hpp"
#include "routing/placement_file.hpp"
#include "run/rank_context.hpp"
#include "run/timed_calls.hpp"

namespace moelane::tools {
namespace {

class Bench {
 public:
  Bench(const Options& options, const RoutingSource& routing, World world, const Arena& arena,
        RankReport& report)
      : options_(options),
        sets_(sets_for(options, options.config.in_flight)),
        rank_(options, routing, std::move(world), sets_, report),
        arena_(arena),
        report_(report) {
    for (int set = 0; set < sets_; ++set) groups_.push_back(rank_.step_of_all_groups(set));
    refuse_overflow();
    rank_.describe();
    for (int set = 0; set < sets_; ++set) rank_.buffers_of(set).in.load(rank_.device, rank_.config, own(set));
  }

  void run() {
    time_steps();
    if (rank_.device.on_card()) {
      report_.extra.update(measure_events_and_launches(rank_));
    }
    floor_and_baselines();
    report_.extra["bench"]["sets"] = sets_;
    report_.extra["bench"]["late_wakes"] = rank_.engine->late_wakes();
  }

 private:
  struct StepTimes {
    std::vector<TimeSpan> dispatch, combine;
  };

  // Times of invalid steps mean nothing. Every rank looks at all, so that all refuse alike.
  void refuse_overflow() const {
    for (const auto& groups : groups_) {
      for (int rank = 0; rank < options_.ranks; ++rank) {
        const auto expected =
            expected_dispatch(rank_.config, rank_.placement.rank_of(), rank, groups, options_.capacity);
        if (!expected.overflow) continue;
        throw Error(ErrorKind::capacity,
                    fmt::format("--capacity is {}, allowed is what holds the rows of every "
                                "rank, and rank {} gets more",
                                options_.capacity, rank));
      }
    }
  }

  const GroupStep& own(int set) const { return rank_.own(groups_[static_cast<std::size_t>(set)]); }

  void time_steps() {
    bool counting = false;
    CallMode mode;
    mode.graphs = options_.graph;
    mode.aligned_start = true;
    mode.events = !rank_.device.one_card();
    TimedCalls calls(*rank_.engine, rank_.world, rank_.device, mode, [&](const TraceEvent& event) {
      if (counting) rank_.count_bytes(event);
    });
    for (int set = 0; set < sets_; ++set) {
      calls.add(rank_.lane_of(set), rank_.buffers_of(set), options_.split);
    }
    rank_.world.barrier();
    for (int set = 0; set < sets_; ++set) check(calls, set);
    counting = true;
    for (int step = 0; step < options_.steps + options_.warmup; ++step) {
      StepTimes times = run_step(calls, step % sets_, false);
      report_.dispatch.push_back(std::move(times.dispatch));
      report_.combine.push_back(std::move(times.combine));
    }
    counting = false;
    // As many steps as were asked for: the warm-up is left out of times, and of bytes in proportion.
    const double share = static_cast<double>(options_.steps) / (options_.steps + options_.warmup);
    for (std::uint64_t* bytes : {&report_.dispatch_bytes, &report_.combine_bytes}) {
      *bytes = static_cast<std::uint64_t>(static_cast<double>(*bytes) * share);
    }
    for (int set = 0; set < sets_; ++set) check(calls, set);
  }

  // One step on a set of buffers.
  StepTimes run_step(TimedCalls& calls, int set, bool with_experts) {
    StepTimes times;
    for (const EngineCall call : dispatch_calls(options_.split)) {
      rank_.world.barrier();
      times.dispatch.push_back(calls.run(call, set));
    }
    if (with_experts) {
      rank_.fetch(set);
      rank_.run_experts(set);
    }
    for (const EngineCall call : combine_calls(options_.split)) {
      rank_.world.barrier();
      times.combine.push_back(calls.run(call, set));
    }
    return times;
  }

  void check(TimedCalls& calls, int set) {
    run_step(calls, set, true);
    StepBuffers& buffers = rank_.buffers_of(set);
    rank_.device.download(buffers.out);
    const std::string where = fmt::format("buffers {}", set);
    rank_.checks.dispatch(where, groups_[static_cast<std::size_t>(set)], buffers);
    rank_.checks.combine(where, own(set), nullptr, buffers);
  }

  void floor_and_baselines() {
    if (rank_.device.on_card()) {
      rank_.report_floor(measure_card_floor(rank_, groups_));
    }
    if (arena_.base == nullptr) return;
    const ArenaMap map(options_, rank_.placement.max_local_experts(), sets_);
    const int repeats = std::max(5, std::min(options_.steps, 20));
    const auto floor = measure_cpu_floor({rank_, arena_, map, groups_, repeats, false});
    rank_.report_floor(floor);
    report_.extra["bench"]["floor"] = floor;
    if (!options_.baseline) return;
    report_.extra["baselines"] =
        measure_baselines({rank_, arena_, map.bytes(), groups_.front(), std::min(options_.steps, 10)});
  }

  const Options& options_;
  int sets_;
  RankContext rank_;
  const Arena& arena_;
  RankReport& report_;
  std::vector<std::vector<GroupStep>> groups_;  // by set
};

}  // namespace

std::size_t bench_arena_bytes(const Options& options) {
  if (options.on_cards()) return 0;  // which have memory of their own
  const Placement placement = open_placement(options.placement, options.config.experts, options.ranks);
  const ArenaMap map(options, placement.max_local_experts(), sets_for(options, options.config.in_flight));
  return map.bytes() + (options.baseline ? baseline_bytes(options, placement) : 0);
}

void bench_rank(const Options& options, const RoutingSource& routing, World world, const Arena& arena,
                RankReport& report) {
  Bench bench(options, routing, std::move(world), arena, report);
  bench.run();
}

}  // namespace moelane::tools
