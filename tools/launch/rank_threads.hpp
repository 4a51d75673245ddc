#pragma once

#include <vector>

#include "launch/run_ranks.hpp"

namespace moelane::tools {

// Each rank is a thread of this process. See run_ranks.
std::vector<RankReport> run_rank_threads(const Options& options, const Arena& arena, const RankMain& main);

}  // namespace moelane::tools
