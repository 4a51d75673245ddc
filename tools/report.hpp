#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "session.hpp"

namespace moelane::tools {

// One object for all ranks: the keys that design and README fix, and more.
nlohmann::json compose(const Options& options, const RoutingSource& routing, const std::vector<RankReport>& reports);

// The same for people.
void print_report(const Options& options, const nlohmann::json& result);

// Chrome trace events of all ranks: a process for each rank, a thread for each lane.
nlohmann::json compose_trace(const std::vector<RankReport>& reports);

// Writes to `path`, or to standard output for "-". Throws Error(argument) when it cannot.
void write_json(const std::string& flag, const std::string& path, const nlohmann::json& value);

}  // namespace moelane::tools
