#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "bench/rank_bench.hpp"
#include "cli/option_values.hpp"
#include "launch/mpi_launch.hpp"
#include "machine/cards.hpp"
#include "machine/doctor.hpp"
#include "plan/plan.hpp"
#include "report/report.hpp"
#include "run/buffers.hpp"
#include "run/rank_run.hpp"

namespace moelane::tools {
namespace {

int run(const Options& options, const std::vector<std::string>& arguments) {
  // Everything that can be wrong with the input is found before any rank starts.
  const auto routing =
      open_routing(options.routing, options.config.experts, options.config.topk, options.seed);
  Config config = options.config;
  config.symmetric_bytes = symmetric_bytes(options, placement_of(options).max_local_experts(), 1);
  check_config(config, options.ranks);
  if (options.reports) {
    check_writable("--json", options.json);
    check_writable("--trace", options.trace);
  }
  if (options.on_cards()) require_cards();
  if (options.over_mpi() && !options.launched) start_mpi_ranks(options.ranks, arguments);
  const bool bench = options.command == Command::bench;
  const std::size_t arena = bench ? bench_arena_bytes(options) : run_arena_bytes(options);
  const auto reports = play_ranks(options, arena, [&](World world, const Arena& shared, RankReport& report) {
    if (bench) {
      bench_rank(options, *routing, std::move(world), shared, report);
    } else {
      run_rank(options, *routing, std::move(world), shared, report);
    }
  });
  const nlohmann::json result = compose(options, *routing, reports);
  if (options.reports) {
    // Files first: when one cannot be written after all, nothing has been said of success.
    if (!options.json.empty()) write_json("--json", options.json, result);
    if (!options.trace.empty()) write_json("--trace", options.trace, compose_trace(reports));
    if (!options.quiet && options.json != "-" && options.trace != "-") print_report(options, result);
  }
  return result.at("exit_code").get<int>();
}

int carry_out(const Options& options, const std::vector<std::string>& arguments) {
  switch (options.command) {
    case Command::run:
    case Command::bench:
      return run(options, arguments);
    case Command::plan:
      return plan(options);
    case Command::doctor:
      return doctor(options);
  }
  return 3;
}

int main_checked(int argc, char** argv) {
  const auto options = parse_options(argc, argv);
  if (!options) return 0;
  prepare_cuda(options->threads());
  const int code = carry_out(*options, {argv + 1, argv + argc});
  // A result that nobody can read is no result.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout.flush()) {
    throw Error(ErrorKind::argument,
                fmt::format("standard output is full or closed, allowed is one that can be "
                            "written, or --quiet: {}",
                            std::strerror(errno)));
  }
  return code;
}

}  // namespace
}  // namespace moelane::tools

int main(int argc, char** argv) {
  try {
    return moelane::tools::main_checked(argc, argv);
  } catch (const moelane::Error& error) {
    const auto place = moelane::tools::mpi_place();
    if (place && place->rank > 0 && error.kind() == moelane::ErrorKind::argument)
      return 2;  // all say the same
    fmt::print(stderr, "moelane: {}\n", error.what());
    return moelane::tools::exit_code_of(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "moelane: {}\n", error.what());
    return 3;
  }
}
