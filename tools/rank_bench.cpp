#include "rank_bench.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "baseline.hpp"
#include "buffers.hpp"
#include "floor.hpp"
#include "rank_run.hpp"
#include "timing.hpp"

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
        arena_(arena),
        report_(report),
        sets_(sets_for(options, config_.in_flight)) {
    const int each = (sets_ + config_.in_flight - 1) / config_.in_flight;
    config_.symmetric_bytes = symmetric_bytes(options_, placement_.max_local_experts(), each);
    engine_ = std::make_unique<Engine>(world_, config_, placement_);
    for (int set = 0; set < sets_; ++set) {
      buffers_.push_back(allocate_buffers(*engine_, options_, set % config_.in_flight));
      groups_.emplace_back();
      for (int g = 0; g < workload_.groups(); ++g) groups_.back().push_back(workload_.make(set, g));
    }
    refuse_overflow();
    report_.heap_bytes = config_.heap_bytes(options.ranks);
    report_.mapped_bytes = engine_->mapped_bytes();
    report_.way = engine_->direct() && !options.split ? "direct" : "put";
    report_.rows.resize(static_cast<std::size_t>(config_.experts));
  }

  void all() {
    for (int set = 0; set < sets_; ++set) {
      use(set, nullptr);
      check(set);
    }
    engine_->set_trace([this](const TraceEvent& event) {
      if (event.peer >= 0) return;
      (std::string_view(event.name).starts_with("dispatch") ? report_.dispatch_bytes
                                                            : report_.combine_bytes) += event.bytes;
    });
    for (int step = 0; step < options_.steps + options_.warmup; ++step) use(step % sets_, &report_);
    engine_->set_trace(nullptr);
    // As many steps as were asked for: the warm-up is left out of times, and of bytes in proportion.
    const double share = static_cast<double>(options_.steps) / (options_.steps + options_.warmup);
    report_.dispatch_bytes = static_cast<std::uint64_t>(static_cast<double>(report_.dispatch_bytes) * share);
    report_.combine_bytes = static_cast<std::uint64_t>(static_cast<double>(report_.combine_bytes) * share);
    for (int set = 0; set < sets_; ++set) {
      use(set, nullptr);
      check(set);
    }
    floor_and_baselines();
    report_.extra["bench"]["sets"] = sets_;
    report_.extra["bench"]["late_wakes"] = engine_->late_wakes();
  }

 private:
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

  // One step on a set of buffers; timed into `report` when given, checked by the caller otherwise.
  void use(int set, RankReport* report) {
    const int lane = set % config_.in_flight;
    StepBuffers& b = buffers(set);
    const DispatchInput in = input_of(config_, mine(set));
    const DispatchOutput out = b.output();
    const TensorView result =
        TensorView::dense(b.out.data(), config_.out_dtype, {mine(set).tokens, config_.hidden});
    std::vector<Span> dispatch, combine;
    const auto timed = [&](std::vector<Span>& spans, const auto& call) {
      spans.emplace_back();
      slowest_us(world_, call, &spans.back());
    };
    if (options_.split) {
      timed(dispatch, [&] { engine_->dispatch_send(lane, in); });
      timed(dispatch, [&] { engine_->dispatch_recv(lane, out); });
    } else {
      timed(dispatch, [&] { engine_->dispatch(lane, in, out); });
    }
    if (report == nullptr) run_experts(options_, placement_, world_.rank(), b);
    if (options_.split) {
      timed(combine, [&] { engine_->combine_send(lane, b.expert_rows); });
      timed(combine, [&] { engine_->combine_recv(lane, result); });
    } else {
      timed(combine, [&] { engine_->combine(lane, b.expert_rows, result); });
    }
    if (report == nullptr) return;
    report->dispatch.push_back(std::move(dispatch));
    report->combine.push_back(std::move(combine));
  }

  void check(int set) {
    const int rank = world_.rank();
    StepBuffers& b = buffers(set);
    const auto& groups = groups_[static_cast<std::size_t>(set)];
    const auto expected = expected_dispatch(config_, placement_.rank_of(), rank, groups, options_.capacity);
    const Difference rows =
        compare_dispatch(config_, placement_.rank_of(), rank, groups, expected, b.view(options_));
    const auto sums = expected_combine(config_, placement_.rank_of(), mine(set), nullptr, {});
    const bool same = std::memcmp(sums.data(), b.out.data(), sums.size()) == 0;
    report_.dispatch_digests.push_back(digest_dispatch(options_, placement_.local_experts(rank), b));
    report_.combine_digests.push_back(digest_bytes(b.out.data(), sums.size(), 0));
    report_.rows_dispatched += static_cast<std::int64_t>(expected.rows.size());
    report_.tokens_combined += mine(set).tokens;
    count_load(options_, placement_, rank, mine(set), b.counts, report_);
    if (rows.bytes == 0 && same) return;
    report_.mismatches += rows.bytes + (same ? 0 : 1);
    report_.verdict = "mismatch";
    report_.exit_code = 1;
    report_.sentence =
        fmt::format("rank {}, buffers {}: {} differs from the reference{}", rank, set,
                    same ? "the dispatch output" : "the combined output", same ? ": " + rows.first : "");
  }

  void floor_and_baselines() {
    if (arena_.base == nullptr) return;
    const ArenaMap map(options_, placement_.max_local_experts(), sets_);
    const auto floor =
        measure_floor({options_, placement_, arena_, map, groups_, world_, report_.way == "direct",
                       std::max(5, std::min(options_.steps, 20)), false});
    report_.extra["floor_dispatch_us"] = floor.at("dispatch_us");
    report_.extra["floor_combine_us"] = floor.at("combine_us");
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
  const Arena& arena_;
  RankReport& report_;
  int sets_;
  std::unique_ptr<Engine> engine_;
  std::vector<StepBuffers> buffers_;
  std::vector<std::vector<GroupStep>> groups_;
};

}  // namespace

std::size_t bench_arena_bytes(const Options& options) {
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
