#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/arena_map.hpp"
#include "launch/run_ranks.hpp"
#include "run/rank_context.hpp"

namespace moelane::tools {

struct CpuFloorInput {
  RankContext& rank;
  const Arena& arena;
  const ArenaMap& map;
  const std::vector<std::vector<GroupStep>>& groups;  // by set, then group
  int repeats;
  bool quick;  // try only the stores that usually win
};

// The least time in which the same processes on the same cores make the same distinct reads and writes of
// random rows: each way of storing is tried, the fastest counts. {"dispatch_us", "combine_us",
// "dispatch_store", "combine_store", "all"}. Collective.
nlohmann::json measure_cpu_floor(const CpuFloorInput& input);

}  // namespace moelane::tools
