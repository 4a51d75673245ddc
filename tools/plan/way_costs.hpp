#pragma once

#include <nlohmann/json.hpp>

#include "plan/traffic.hpp"

namespace moelane::tools {

// Of `dispatch` and of `combine` by one way, for a step and a rank: rows (that leave the rank, those to
// itself included), rows_placed, bytes (all of them), bytes_local, bytes_link (out, over the links),
// most_link_bytes, memory_bytes, most_memory_bytes, floor_us.
nlohmann::json way_costs(bool direct, const Options& options, const Traffic& traffic);

}  // namespace moelane::tools
