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

// Bytes of arena that `moelane run` needs for its floor.
std::size_t run_arena_bytes(const Options& options);

// `moelane run` on one rank: every step of the main job, each checked against the reference, then the floor.
void run_rank(const Options& options, const RoutingSource& routing, World world, const Arena& arena,
              RankReport& report);

}  // namespace moelane::tools
