#pragma once

#include <vector>

#include "launch/run_ranks.hpp"

namespace moelane::tools {

// Each rank is a process, forked from this one, that sends its report through a pipe. See run_ranks.
std::vector<RankReport> run_rank_processes(const Options& options, const Arena& arena, const RankMain& main);

}  // namespace moelane::tools
