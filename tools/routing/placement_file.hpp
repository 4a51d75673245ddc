#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "moelane/placement.hpp"

namespace moelane::tools {

// Reads where each expert lives: JSON, either {"rank_of": [r0, r1, ...]} or the list alone, with `experts`
// entries from 0 to below `ranks`. Returns [experts] rank numbers. Throws Error(argument).
std::vector<std::int32_t> read_placement(const std::string& path, int experts, int ranks);

// The placement that `spec` names: "contiguous", or such a file.
Placement open_placement(const std::string& spec, int experts, int ranks);

}  // namespace moelane::tools
