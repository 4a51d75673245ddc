#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/session.hpp"

namespace moelane::tools {

// One object for all ranks: the keys that design and README fix, and more.
nlohmann::json compose(const Options& options, const RoutingSource& routing,
                       const std::vector<RankReport>& reports);

// What was asked for, as the key `config` of all reports.
nlohmann::json config_json(const Options& options);
// Largest over mean; 1 when there is nothing.
double imbalance(const std::vector<double>& loads);
// Bytes for people: 43.2 MiB.
std::string amount(double bytes);

// The same for people.
void print_report(const Options& options, const nlohmann::json& result);

// Chrome trace events of all ranks: a process for each rank, a thread for each lane.
nlohmann::json compose_trace(const std::vector<RankReport>& reports);

// Throws Error(argument) when `path` cannot be written ("" and "-" can): said before the work, not after it.
void check_writable(const std::string& flag, const std::string& path);

// Writes to `path`, or to standard output for "-". Throws Error(argument) when it cannot.
void write_json(const std::string& flag, const std::string& path, const nlohmann::json& value);

}  // namespace moelane::tools
