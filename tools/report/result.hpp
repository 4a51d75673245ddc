#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "cli/options.hpp"
#include "report/rank_report.hpp"

namespace moelane::tools {

// One object for all ranks: the keys that design and README fix, and more.
nlohmann::json compose_result(const Options& options, const RoutingSource& routing,
                              const std::vector<RankReport>& reports);

// What was asked for, as the key `config` of all reports.
nlohmann::json config_json(const Options& options);
// Largest over mean; 1 when there is nothing.
double imbalance(const std::vector<double>& loads);

}  // namespace moelane::tools
