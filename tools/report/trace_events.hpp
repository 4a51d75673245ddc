#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "report/rank_report.hpp"

namespace moelane::tools {

// Chrome trace events of all ranks: a process for each rank, a thread for each lane.
nlohmann::json compose_trace(const std::vector<RankReport>& reports);

}  // namespace moelane::tools
