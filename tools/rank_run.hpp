#pragma once

#include "moelane/placement.hpp"
#include "session.hpp"

namespace moelane::tools {

// The placement that the options name. Throws Error(argument).
Placement placement_of(const Options& options);

// Adds one step's load to the report: rows of this rank's experts, and how many ranks its group's tokens
// visit.
void count_load(const Options& options, const Placement& placement, int rank, const GroupStep& own,
                const std::vector<std::int32_t>& counts, RankReport& report);

// `moelane run` on one rank: every step of the main job, each checked against the reference.
void run_rank(const Options& options, const RoutingSource& routing, World world, RankReport& report);

}  // namespace moelane::tools
