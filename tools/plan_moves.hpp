#pragma once

#include <nlohmann/json.hpp>

#include "traffic.hpp"

namespace moelane::tools {

// Rows, bytes and floors of dispatch and combine by one way, for a step and a rank: {"dispatch": {...}, "combine":
// {...}}, each with rows (that leave a rank, its own included), rows_placed, bytes (all of them), bytes_local,
// bytes_link (over the links, out), most_link_bytes, memory_bytes, most_memory_bytes, floor_us.
nlohmann::json moves_by(bool direct, const Options& options, const Traffic& traffic);

}  // namespace moelane::tools
