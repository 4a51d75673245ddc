#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "cli/options.hpp"
#include "moelane/world.hpp"
#include "report/rank_report.hpp"

namespace moelane::tools {

// Memory that all ranks share, mapped before they start: what floors and baselines move bytes through.
struct Arena {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
};

// One rank's work. Throws Error; whatever `report` holds by then is kept.
using RankMain = std::function<void(World world, const Arena& arena, RankReport& report)>;

// Runs the ranks as threads or as processes (or is one of a launcher's) and gathers their reports, in rank
// order. A rank that vanished has a report that says so. Prints a rank's sentence as soon as it fails; about
// bad input only one, for all ranks. In a launched world each rank gets all reports, or its own alone if it
// failed.
std::vector<RankReport> run_ranks(const Options& options, std::size_t arena_bytes, const RankMain& main);

}  // namespace moelane::tools
