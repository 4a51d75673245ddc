#pragma once

#include <cstddef>
#include <vector>

#include "launch/run_ranks.hpp"

namespace moelane::tools {

// This process is one rank of a launcher's; reports are exchanged over the world once all are done. See
// run_ranks.
std::vector<RankReport> run_launched_rank(const Options& options, std::size_t arena_bytes,
                                          const RankMain& main);

}  // namespace moelane::tools
