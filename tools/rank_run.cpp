#include "rank_run.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "buffers.hpp"
#include "floor.hpp"
#include "random.hpp"
#include "timing.hpp"

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
        report_(report) {
    config_.symmetric_bytes = symmetric_bytes(options_, placement_.max_local_experts(), 1);
    engine_ = std::make_unique<Engine>(world_, config_, placement_);
    for (int lane = 0; lane < config_.in_flight; ++lane) {
      buffers_.push_back(allocate_buffers(*engine_, options_, lane));
    }
    report_.heap_bytes = config_.heap_bytes(options.ranks);
    report_.mapped_bytes = engine_->mapped_bytes();
    report_.way = engine_->direct() && !options.split ? "direct" : "put";
    report_.rows.resize(static_cast<std::size_t>(config_.experts));
    engine_->set_trace([this](const TraceEvent& event) { trace(event); });
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
    if (arena.base == nullptr || report_.mismatches != 0) return;
    std::vector<std::vector<GroupStep>> groups;
    for (int set = 0; set < floor_sets(options_); ++set) {
      groups.emplace_back();
      for (int g = 0; g < workload_.groups(); ++g) groups.back().push_back(workload_.make(set, g));
    }
    const ArenaMap map(options_, placement_.max_local_experts(), floor_sets(options_));
    const auto floor =
        measure_floor({options_, placement_, arena, map, groups, world_, report_.way == "direct", 3, true});
    report_.extra["floor_dispatch_us"] = floor.at("dispatch_us");
    report_.extra["floor_combine_us"] = floor.at("combine_us");
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
  TensorView out_of(const Active& a) {
    return TensorView::dense(buffers(a).out.data(), config_.out_dtype, {mine(a).tokens, config_.hidden});
  }

  // What combine adds to: for each step and group its own values, in (-1, 1), whatever lane it is on.
  std::vector<std::byte> old_output(const Active& a) {
    std::vector<std::byte> out(buffers(a).out.size());
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
    const auto at = static_cast<std::size_t>(first);
    report_.dispatch.resize(at + active.size());
    report_.combine.resize(at + active.size());
    world_.barrier();
    for (const Active& a : active) misbehave(a.step + 1);
    dispatch(active);
    for (Active& a : active) {
      check_dispatch(a);
      run_experts(options_, placement_, world_.rank(), buffers(a));
      if (options_.accumulate) a.old = buffers(a).out = old_output(a);
    }
    world_.barrier();
    if (options_.split) {
      for (Active& a : active) {
        timed(report_.combine, a, [&] { engine_->combine_send(a.lane, buffers(a).expert_rows); });
      }
      for (Active& a : active) {
        timed(report_.combine, a, [&] { engine_->combine_recv(a.lane, out_of(a), options_.accumulate); });
      }
    } else {
      Active& a = active.front();
      timed(report_.combine, a,
            [&] { engine_->combine(a.lane, buffers(a).expert_rows, out_of(a), options_.accumulate); });
    }
    for (const Active& a : active) check_combine(a);
  }

  void dispatch(std::vector<Active>& active) {
    std::optional<Error> full;
    try {
      if (options_.split) {
        for (Active& a : active) {
          timed(report_.dispatch, a, [&] { engine_->dispatch_send(a.lane, input_of(config_, mine(a))); });
        }
        for (Active& a : active) {
          timed(report_.dispatch, a, [&] { engine_->dispatch_recv(a.lane, buffers(a).output()); });
        }
      } else {
        Active& a = active.front();
        timed(report_.dispatch, a,
              [&] { engine_->dispatch(a.lane, input_of(config_, mine(a)), buffers(a).output()); });
      }
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

  template <class Call>
  void timed(std::vector<std::vector<Span>>& spans, const Active& a, const Call& call) {
    step_ = a.step;
    Span span{now_ns(), 0};
    try {
      call();
    } catch (const Error& error) {
      // In words of the command line, too: the engine counts steps by lane.
      const bool full = error.kind() == ErrorKind::capacity;
      throw Error(error.kind(),
                  error.what() + (full ? fmt::format("; --capacity is {}", options_.capacity)
                                       : fmt::format("; this was step {} of the run", a.step + 1)));
    }
    span.end = now_ns();
    spans[static_cast<std::size_t>(a.step)].push_back(span);
  }

  void misbehave(int step) {
    const Fault& fault = options_.fault;
    if (fault.rank != world_.rank() || fault.step != step) return;
    if (!fault.die) {
      stall(world_.rank(), fault.seconds);
    } else if (options_.transport == "threads") {
      static std::unique_ptr<Engine> dead;  // kept to the program's end: a dead rank says no farewell
      dead = std::move(engine_);
      throw InjectedDeath{fmt::format("rank {} died, as --inject asked", world_.rank())};
    } else {
      kill(getpid(), SIGKILL);
    }
  }

  void count_mismatch(const Difference& difference, const char* what, const Active& a) {
    if (difference.bytes == 0) return;
    if (report_.mismatches == 0) {
      report_.verdict = "mismatch";
      report_.exit_code = 1;
      report_.sentence = fmt::format("rank {}, step {}: {} differs from the reference: {}", world_.rank(),
                                     a.step + 1, what, difference.first);
    }
    report_.mismatches += difference.bytes;
  }

  void check_dispatch(const Active& a) {
    const int rank = world_.rank();
    const auto expected = expected_dispatch(config_, placement_.rank_of(), rank, a.groups, options_.capacity);
    count_mismatch(
        compare_dispatch(config_, placement_.rank_of(), rank, a.groups, expected, buffers(a).view(options_)),
        "the dispatch output", a);
    report_.dispatch_digests.push_back(digest_dispatch(options_, placement_.local_experts(rank), buffers(a)));
    report_.rows_dispatched += static_cast<std::int64_t>(expected.rows.size());
    count_load(options_, placement_, rank, mine(a), buffers(a).counts, report_);
  }

  void check_combine(const Active& a) {
    const GroupStep& own = mine(a);
    const std::vector<std::byte> expected = expected_combine(
        config_, placement_.rank_of(), own, options_.accumulate ? a.old.data() : nullptr, {});
    const std::vector<std::byte>& got = buffers_[static_cast<std::size_t>(a.lane)].out;
    Difference difference;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] == got[i]) continue;
      const std::size_t element = i / size_of(config_.out_dtype);
      if (difference.bytes++ == 0) {
        difference.first =
            fmt::format("token {}, element {}", element / static_cast<std::size_t>(config_.hidden),
                        element % static_cast<std::size_t>(config_.hidden));
      }
    }
    count_mismatch(difference, "the combined output", a);
    report_.combine_digests.push_back(digest_bytes(got.data(), expected.size(), 0));
    report_.tokens_combined += own.tokens;
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
  RankReport& report_;
  std::unique_ptr<Engine> engine_;
  std::vector<StepBuffers> buffers_;
  int step_ = 0;
  std::int64_t shown_ns_ = 0;
};

}  // namespace

std::size_t run_arena_bytes(const Options& options) {
  if (options.fault.rank >= 0) return 0;  // its times mean nothing
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
