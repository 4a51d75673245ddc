#pragma once

#include <nlohmann/json.hpp>

#include "bench_plan.hpp"
#include "moelane/world.hpp"

namespace moelane::tools {

struct FloorContext {
  const Options& options;
  const Arena& arena;
  const ArenaMap& map;
  const std::vector<Moves>& moves;  // by set
  World& world;
  bool direct;
  int repeats;
};

// The least time in which the same processes on the same cores make the same distinct reads and writes: each
// way of storing is tried, the fastest counts. {"dispatch_us", "combine_us", "dispatch_store",
// "combine_store"}.
nlohmann::json measure_floor(const FloorContext& context);

}  // namespace moelane::tools
