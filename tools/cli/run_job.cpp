#include "cli/run_job.hpp"

#include <utility>

#include "bench/bench_rank.hpp"
#include "cli/option_values.hpp"
#include "launch/mpi_launch.hpp"
#include "launch/run_ranks.hpp"
#include "machine/cards.hpp"
#include "report/output_file.hpp"
#include "report/print_result.hpp"
#include "report/result.hpp"
#include "report/trace_events.hpp"
#include "routing/placement_file.hpp"
#include "routing/routing.hpp"
#include "run/run_rank.hpp"
#include "run/step_buffers.hpp"

namespace moelane::tools {

int run_job(const Options& options, const std::vector<std::string>& arguments) {
  // Everything that can be wrong with the input is found before any rank starts.
  const auto routing =
      open_routing(options.routing, options.config.experts, options.config.topk, options.seed);
  Config config = options.config;
  const Placement placement = open_placement(options.placement, config.experts, options.ranks);
  config.symmetric_bytes = symmetric_bytes(options, placement.max_local_experts(), 1);
  check_config(config, options.ranks);
  if (options.reports) {
    check_writable("--json", options.json);
    check_writable("--trace", options.trace);
  }
  if (options.on_cards()) require_cards();
  if (options.over_mpi() && !options.launched) start_mpi_ranks(options.ranks, arguments);
  const bool bench = options.command == Command::bench;
  const std::size_t arena = bench ? bench_arena_bytes(options) : run_arena_bytes(options);
  const auto reports = run_ranks(options, arena, [&](World world, const Arena& shared, RankReport& report) {
    if (bench) {
      bench_rank(options, *routing, std::move(world), shared, report);
    } else {
      run_rank(options, *routing, std::move(world), shared, report);
    }
  });
  const nlohmann::json result = compose_result(options, *routing, reports);
  if (options.reports) {
    // Files first: when one cannot be written after all, nothing has been said of success.
    if (!options.json.empty()) write_json("--json", options.json, result);
    if (!options.trace.empty()) write_json("--trace", options.trace, compose_trace(reports));
    if (!options.quiet && options.json != "-" && options.trace != "-") print_result(options, result);
  }
  return result.at("exit_code").get<int>();
}

}  // namespace moelane::tools
