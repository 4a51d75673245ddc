#include "bench/rank_bench.hpp"

#include <fmt/format.h>

#include <memory>

#include "bench/baseline.hpp"
#include "bench/card_bench.hpp"
#include "bench/card_floor.hpp"
#include "bench/floor.hpp"
#include "run/calls.hpp"
#include "run/rank_run.hpp"
#include "run/step_checks.hpp"

namespace moelane::tools {
namespace {

class Bench {
 public:
  Bench(const Options& options, const RoutingSource& routing, World world, const Arena& arena,
        RankReport& report)
      : options_(options),
        config_(options.config),
        placement_(placement_of(options)),
        workload_(config_, options.ranks, routing, options.tokens, options.seed),
        world_(std::move(world)),
        place_(world_, options),
        arena_(arena),
        report_(report),
        checks_(options, placement_, world_.rank(), report),
        sets_(sets_for(options, config_.in_flight)) {
    const int each = (sets_ + config_.in_flight - 1) / config_.in_flight;
    config_.num_sms = place_.num_sms();
    config_.symmetric_bytes = symmetric_bytes(options_, placement_.max_local_experts(), each);
    engine_ = std::make_unique<Engine>(world_, config_, placement_);
    for (int set = 0; set < sets_; ++set) {
      buffers_.push_back(allocate_buffers(place_, *engine_, options_, lane(set)));
      groups_.emplace_back();
      for (int g = 0; g < workload_.groups(); ++g) groups_.back().push_back(workload_.make(set, g));
    }
    refuse_overflow();
    describe(options_, *engine_, place_, report_);
    for (int set = 0; set < sets_; ++set) buffers(set).in.take(place_, config_, mine(set));
  }

  void all() {
    time_steps();
    if (place_.card()) {
      report_.extra.update(measure_events_and_launches({options_, *engine_, world_, place_, buffers_}));
    }
    floor_and_baselines();
    report_.extra["bench"]["sets"] = sets_;
    report_.extra["bench"]["late_wakes"] = engine_->late_wakes();
  }

 private:
  struct Times {
    std::vector<Span> dispatch, combine;
  };

  // Times of invalid steps mean nothing. Every rank looks at all, so that all refuse alike.
  void refuse_overflow() const {
    for (const auto& groups : groups_) {
      for (int rank = 0; rank < options_.ranks; ++rank) {
        if (!expected_dispatch(config_, placement_.rank_of(), rank, groups, options_.capacity).overflow)
          continue;
        throw Error(ErrorKind::capacity,
                    fmt::format("--capacity is {}, allowed is what holds the rows of every "
                                "rank, and rank {} gets more",
                                options_.capacity, rank));
      }
    }
  }

  int group() const { return world_.rank() / config_.tp_size; }
  const GroupStep& mine(int set) const {
    return groups_[static_cast<std::size_t>(set)][static_cast<std::size_t>(group())];
  }
  StepBuffers& buffers(int set) { return buffers_[static_cast<std::size_t>(set)]; }
  int lane(int set) const { return set % config_.in_flight; }

  void time_steps() {
    bool counting = false;
    CallMode mode;
    mode.graphs = options_.graph;
    mode.together = true;
    mode.events = !place_.one_card();
    Calls calls(*engine_, world_, place_, mode, [&](const TraceEvent& event) {
      if (event.peer >= 0 || !counting) return;
      (std::string_view(event.name).starts_with("dispatch") ? report_.dispatch_bytes
                                                            : report_.combine_bytes) += event.bytes;
    });
    for (int set = 0; set < sets_; ++set) calls.add(lane(set), buffers(set), options_.split);
    world_.barrier();
    for (int set = 0; set < sets_; ++set) check(calls, set);
    counting = true;
    for (int step = 0; step < options_.steps + options_.warmup; ++step) {
      Times times = use(calls, step % sets_, false);
      report_.dispatch.push_back(std::move(times.dispatch));
      report_.combine.push_back(std::move(times.combine));
    }
    counting = false;
    // As many steps as were asked for: the warm-up is left out of times, and of bytes in proportion.
    const double share = static_cast<double>(options_.steps) / (options_.steps + options_.warmup);
    report_.dispatch_bytes = static_cast<std::uint64_t>(static_cast<double>(report_.dispatch_bytes) * share);
    report_.combine_bytes = static_cast<std::uint64_t>(static_cast<double>(report_.combine_bytes) * share);
    for (int set = 0; set < sets_; ++set) check(calls, set);
  }

  // One step on a set of buffers.
  Times use(Calls& calls, int set, bool with_experts) {
    Times times;
    for (const Call call : dispatch_calls(options_.split)) {
      world_.barrier();
      times.dispatch.push_back(calls.make(call, set));
    }
    if (with_experts) {
      fetch_dispatched(options_, place_, placement_.local_experts(world_.rank()), buffers(set));
      run_experts(options_, place_, placement_, world_.rank(), buffers(set));
    }
    for (const Call call : combine_calls(options_.split)) {
      world_.barrier();
      times.combine.push_back(calls.make(call, set));
    }
    return times;
  }

  void check(Calls& calls, int set) {
    use(calls, set, true);
    place_.download(buffers(set).out);
    const std::string where = fmt::format("buffers {}", set);
    checks_.dispatch(where, groups_[static_cast<std::size_t>(set)], buffers(set));
    checks_.combine(where, mine(set), nullptr, buffers(set));
  }

  void floor_and_baselines() {
    const bool direct = report_.way == "direct";
    if (place_.card()) {
      keep_floor(measure_card_floor({options_, placement_, groups_, place_, world_, direct}), report_);
    }
    if (arena_.base == nullptr) return;
    const ArenaMap map(options_, placement_.max_local_experts(), sets_);
    const int repeats = std::max(5, std::min(options_.steps, 20));
    const auto floor =
        measure_floor({options_, placement_, arena_, map, groups_, world_, direct, repeats, false});
    keep_floor(floor, report_);
    report_.extra["bench"]["floor"] = floor;
    if (!options_.baseline) return;
    report_.extra["baselines"] = measure_baselines(
        {options_, placement_, arena_, map.bytes(), groups_.front(), world_, std::min(options_.steps, 10)});
  }

  const Options& options_;
  Config config_;
  Placement placement_;
  Workload workload_;
  World world_;
  Place place_;
  const Arena& arena_;
  RankReport& report_;
  StepChecks checks_;
  int sets_;
  std::vector<std::vector<GroupStep>> groups_;
  std::vector<StepBuffers> buffers_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace

std::size_t bench_arena_bytes(const Options& options) {
  if (options.on_cards()) return 0;  // which have memory of their own
  const Placement placement = placement_of(options);
  const ArenaMap map(options, placement.max_local_experts(), sets_for(options, options.config.in_flight));
  return map.bytes() + (options.baseline ? baseline_bytes(options, placement) : 0);
}

void bench_rank(const Options& options, const RoutingSource& routing, World world, const Arena& arena,
                RankReport& report) {
  Bench bench(options, routing, std::move(world), arena, report);
  bench.all();
}

}  // namespace moelane::tools
