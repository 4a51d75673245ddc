#include "run/rank_run.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "bench/card_floor.hpp"
#include "bench/floor.hpp"
#include "routing/random.hpp"
#include "run/calls.hpp"
#include "run/step_checks.hpp"
#include "run/timing.hpp"

namespace moelane::tools {
namespace {

int floor_sets(const Options& options) { return std::min(2, options.steps); }

class Run {
 public:
  Run(const Options& options, const RoutingSource& routing, World world, RankReport& report)
      : options_(options),
        config_(options.config),
        placement_(placement_of(options)),
        workload_(config_, options.ranks, routing, options.tokens, options.seed),
        world_(std::move(world)),
        place_(world_, options),
        report_(report),
        checks_(options, placement_, world_.rank(), report) {
    config_.num_sms = place_.num_sms();
    config_.symmetric_bytes = symmetric_bytes(options_, placement_.max_local_experts(), 1);
    engine_ = std::make_unique<Engine>(world_, config_, placement_);
    for (int lane = 0; lane < config_.in_flight; ++lane) {
      buffers_.push_back(allocate_buffers(place_, *engine_, options_, lane));
    }
    describe(options_, *engine_, place_, report_);
    CallMode mode;
    mode.accumulate = options_.accumulate;
    mode.graphs = mode.late = options_.graph;
    mode.together = options_.fault.rank < 0;  // a barrier would wait for the rank as well
    mode.events = !place_.one_card();
    calls_.emplace(*engine_, world_, place_, mode, [this](const TraceEvent& event) { trace(event); });
    for (int lane = 0; lane < config_.in_flight; ++lane) {
      calls_->add(lane, buffers_[static_cast<std::size_t>(lane)], options_.split);
    }
  }

  // Each lane does its first step once more, before: the system maps memory when it is first touched, which
  // is not the library's time. Results count all the same.
  void warm_up() {
    if (options_.fault.rank >= 0) return;
    const RankReport before = report_;
    const int together = options_.split ? config_.in_flight : 1;
    for (int step = 0; step < std::min(config_.in_flight, options_.steps); step += together) {
      some_steps(step, std::min(together, options_.steps - step));
    }
    if (report_.mismatches == 0) report_ = before;
  }

  // The floor of the last steps' rows, one set of buffers for each lane.
  void floor(const Arena& arena) {
    const bool measured = place_.card() ? options_.fault.rank < 0 : arena.base != nullptr;
    if (!measured || report_.mismatches != 0) return;
    std::vector<std::vector<GroupStep>> groups;
    for (int set = 0; set < floor_sets(options_); ++set) {
      groups.emplace_back();
      for (int g = 0; g < workload_.groups(); ++g) groups.back().push_back(workload_.make(set, g));
    }
    const bool direct = report_.way == "direct";
    if (place_.card()) {
      keep_floor(measure_card_floor({options_, placement_, groups, place_, world_, direct}), report_);
    } else {
      const ArenaMap map(options_, placement_.max_local_experts(), floor_sets(options_));
      keep_floor(measure_floor({options_, placement_, arena, map, groups, world_, direct, 3, true}), report_);
    }
  }

  void all_steps() {
    if (report_.mismatches != 0) return;
    const int together = options_.split ? config_.in_flight : 1;
    for (int step = 0; step < options_.steps; step += together) {
      some_steps(step, std::min(together, options_.steps - step));
      progress(step + together);
    }
  }

 private:
  struct Active {
    int step, lane;
    std::vector<GroupStep> groups;
    std::vector<std::byte> old;
  };

  int group() const { return world_.rank() / config_.tp_size; }
  StepBuffers& buffers(const Active& a) { return buffers_[static_cast<std::size_t>(a.lane)]; }
  const GroupStep& mine(const Active& a) const { return a.groups[static_cast<std::size_t>(group())]; }

  // What combine adds to: for each step and group its own values, in (-1, 1), whatever lane it is on.
  std::vector<std::byte> old_output(const Active& a) {
    std::vector<std::byte> out(bytes_of(buffers(a).out.host));
    Random random(options_.seed, static_cast<std::uint64_t>(a.step), static_cast<std::uint64_t>(group()),
                  stream::first_free + 64);
    const std::size_t size = size_of(config_.out_dtype);
    for (std::size_t at = 0; at < out.size(); at += size) {
      const auto bits = static_cast<std::uint32_t>(random.next());
      const std::uint32_t value = config_.out_dtype == DType::bf16   ? (bits & 0x807FU) | 0x3F00U
                                  : config_.out_dtype == DType::fp16 ? (bits & 0x83FFU) | 0x3800U
                                                                     : (bits & 0x807FFFFFU) | 0x3F000000U;
      std::memcpy(out.data() + at, &value, size);
    }
    return out;
  }

  // `count` steps, each on its lane; with split calls their halves interleave, as two micro-batches do.
  void some_steps(int first, int count) {
    std::vector<Active> active;
    for (int i = 0; i < count; ++i) {
      Active a{first + i, (first + i) % config_.in_flight, {}, {}};
      for (int g = 0; g < workload_.groups(); ++g) a.groups.push_back(workload_.make(a.step, g));
      active.push_back(std::move(a));
    }
    for (Active& a : active) buffers(a).in.take(place_, config_, mine(a));
    const auto at = static_cast<std::size_t>(first);
    report_.dispatch.resize(at + active.size());
    report_.combine.resize(at + active.size());
    world_.barrier();
    for (const Active& a : active) misbehave(a.step + 1);
    dispatch(active);
    for (Active& a : active) {
      fetch_dispatched(options_, place_, placement_.local_experts(world_.rank()), buffers(a));
      checks_.dispatch(fmt::format("step {}", a.step + 1), a.groups, buffers(a));
      run_experts(options_, place_, placement_, world_.rank(), buffers(a));
      if (options_.accumulate) fill_output(a);
    }
    world_.barrier();
    make(combine_calls(options_.split), report_.combine, active);
    for (const Active& a : active) {
      place_.download(buffers(a).out);
      checks_.combine(fmt::format("step {}", a.step + 1), mine(a),
                      options_.accumulate ? a.old.data() : nullptr, buffers(a));
    }
  }

  void fill_output(Active& a) {
    a.old = old_output(a);
    std::memcpy(buffers(a).out.host.data, a.old.data(), a.old.size());
    place_.upload(buffers(a).out);
  }

  void dispatch(const std::vector<Active>& active) {
    std::optional<Error> full;
    try {
      make(dispatch_calls(options_.split), report_.dispatch, active);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::capacity) throw;
      full = error;
    }
    // All stop together: nobody waits for a rank that has stopped.
    const char stops = full ? 1 : 0;
    std::vector<char> all(static_cast<std::size_t>(options_.ranks));
    world_.all_gather(&stops, 1, all.data());
    if (full) throw *full;
    const auto other = std::find(all.begin(), all.end(), 1);
    if (other == all.end()) return;
    throw Stopped{fmt::format("rank {} stopped in step {}, as rank {} had too little --capacity",
                              world_.rank(), active.front().step + 1, other - all.begin())};
  }

  // The calls of a phase, each on all lanes before the next.
  void make(const std::vector<Call>& calls, std::vector<std::vector<Span>>& spans,
            const std::vector<Active>& active) {
    for (const Call call : calls) {
      for (const Active& a : active) spans[static_cast<std::size_t>(a.step)].push_back(make(call, a));
    }
  }

  Span make(Call call, const Active& a) {
    step_ = a.step;
    try {
      return calls_->make(call, a.lane);
    } catch (const Error& error) {
      // In words of the command line, too: the engine counts steps by lane.
      const bool full = error.kind() == ErrorKind::capacity;
      throw Error(error.kind(),
                  error.what() + (full ? fmt::format("; --capacity is {}", options_.capacity)
                                       : fmt::format("; this was step {} of the run", a.step + 1)));
    }
  }

  void misbehave(int step) {
    const Fault& fault = options_.fault;
    if (fault.rank != world_.rank() || fault.step != step) return;
    if (!fault.die) {
      stall(world_.rank(), fault.seconds);
    } else if (options_.threads()) {
      // Kept beyond the program's end: a dead rank says no farewell; nor does it give memory back, for which
      // a card would wait for the kernels that wait for this rank.
      static auto& dead = *new std::pair<std::unique_ptr<Engine>, std::vector<StepBuffers>>;
      dead = {std::move(engine_), std::move(buffers_)};
      throw InjectedDeath{fmt::format("rank {} died, as --inject asked", world_.rank())};
    } else {
      kill(getpid(), SIGKILL);
    }
  }

  void trace(const TraceEvent& event) {
    if (event.peer < 0) {
      (std::string_view(event.name).starts_with("dispatch") ? report_.dispatch_bytes
                                                            : report_.combine_bytes) += event.bytes;
    }
    if (options_.trace.empty()) return;
    report_.trace.push_back(
        {event.name, event.lane, step_ + 1, event.peer, event.begin_ns, event.end_ns, event.bytes});
  }

  void progress(int done) {
    if (world_.rank() != 0 || options_.quiet || isatty(STDERR_FILENO) == 0) return;
    const std::int64_t now = now_ns();
    const bool last = done >= options_.steps;
    if (!last && now - shown_ns_ < 500'000'000) return;
    if (shown_ns_ == 0 && last) return;  // too short for a line
    shown_ns_ = now;
    fmt::print(stderr, "\r{} of {} steps{}", std::min(done, options_.steps), options_.steps,
               last ? "\n" : "");
  }

  const Options& options_;
  Config config_;
  Placement placement_;
  Workload workload_;
  World world_;
  Place place_;
  RankReport& report_;
  StepChecks checks_;
  // Memory of a card goes back last: that would wait for peers that wait for this rank's farewell.
  std::vector<StepBuffers> buffers_;
  std::unique_ptr<Engine> engine_;
  std::optional<Calls> calls_;
  int step_ = 0;
  std::int64_t shown_ns_ = 0;
};

}  // namespace

std::size_t run_arena_bytes(const Options& options) {
  if (options.fault.rank >= 0) return 0;  // its times mean nothing
  if (options.on_cards()) return 0;       // which have memory of their own
  return ArenaMap(options, placement_of(options).max_local_experts(), floor_sets(options)).bytes();
}

void run_rank(const Options& options, const RoutingSource& routing, World world, const Arena& arena,
              RankReport& report) {
  Run run(options, routing, std::move(world), report);
  run.warm_up();
  run.all_steps();
  run.floor(arena);
}

}  // namespace moelane::tools
