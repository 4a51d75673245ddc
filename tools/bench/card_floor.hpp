#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "moelane/placement.hpp"
#include "routing/workload.hpp"
#include "run/place.hpp"

namespace moelane::tools {

struct CardFloorContext {
  const Options& options;
  const Placement& placement;
  const std::vector<std::vector<GroupStep>>& groups;  // by set, then group
  const Place& place;
  World& world;
  bool direct;
};

// The least time in which one kernel on the whole card makes the distinct reads and writes of all ranks' rows
// (put way: into the slots, and another out of them), from and to memory larger than its cache. Collective:
// rank 0 measures, while the others wait. {"dispatch_us", "combine_us"}; null where ranks are on several
// cards, or rank 0 may not use the whole of it.
nlohmann::json measure_card_floor(const CardFloorContext& context);

}  // namespace moelane::tools
