#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "run/rank_context.hpp"

namespace moelane::tools {

// `groups`: by set of buffers, then group. The least time in which one kernel on the whole card makes the
// distinct reads and writes of all ranks' rows (put way: into the slots, and another out of them), from and
// to memory larger than its cache. Collective: rank 0 measures, while the others wait. {"dispatch_us",
// "combine_us"}; null where ranks are on several cards, or rank 0 may not use the whole of it.
nlohmann::json measure_card_floor(RankContext& rank, const std::vector<std::vector<GroupStep>>& groups);

}  // namespace moelane::tools
