#pragma once

#include <nlohmann/json.hpp>

#include "bench/bench_plan.hpp"
#include "moelane/world.hpp"

namespace moelane::tools {

struct FloorContext {
  const Options& options;
  const Placement& placement;
  const Arena& arena;
  const ArenaMap& map;
  const std::vector<std::vector<GroupStep>>& groups;  // by set, then group
  World& world;
  bool direct;
  int repeats;
  bool quick;  // try only the stores that usually win
};

// The least time in which the same processes on the same cores make the same distinct reads and writes of
// random rows: each way of storing is tried, the fastest counts. {"dispatch_us", "combine_us",
// "dispatch_store", "combine_store", "all"}. Collective.
nlohmann::json measure_floor(const FloorContext& context);

}  // namespace moelane::tools
