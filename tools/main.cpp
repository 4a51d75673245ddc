#include <fmt/format.h>

#include <exception>

#include "rank_run.hpp"
#include "report.hpp"

namespace moelane::tools {
namespace {

int run(const Options& options) {
  // Everything that can be wrong with the input is found before any rank starts.
  const auto routing = open_routing(options.routing, options.config.experts, options.config.topk, options.seed);
  (void)placement_of(options);
  const auto reports = play_ranks(options, 0, [&](World world, const Arena&, RankReport& report) {
    run_rank(options, *routing, std::move(world), report);
  });
  if (reports.empty()) return 0;
  const nlohmann::json result = compose(options, *routing, reports);
  if (!options.quiet && options.json != "-") print_report(options, result);
  if (!options.json.empty()) write_json("--json", options.json, result);
  if (!options.trace.empty()) write_json("--trace", options.trace, compose_trace(reports));
  return result.at("exit_code").get<int>();
}

int main_checked(int argc, char** argv) {
  const auto options = parse_options(argc, argv);
  if (!options) return 0;
  switch (options->command) {
    case Command::run:
      return run(*options);
    default:
      return 2;
  }
}

}  // namespace
}  // namespace moelane::tools

int main(int argc, char** argv) {
  try {
    return moelane::tools::main_checked(argc, argv);
  } catch (const moelane::Error& error) {
    fmt::print(stderr, "moelane: {}\n", error.what());
    return moelane::tools::exit_code_of(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "moelane: {}\n", error.what());
    return 3;
  }
}
