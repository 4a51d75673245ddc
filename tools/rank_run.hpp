#pragma once

#include "moelane/placement.hpp"
#include "session.hpp"

namespace moelane::tools {

// The placement that the options name. Throws Error(argument).
Placement placement_of(const Options& options);

// `moelane run` on one rank: every step of the main job, each checked against the reference.
void run_rank(const Options& options, const RoutingSource& routing, World world, RankReport& report);

}  // namespace moelane::tools
