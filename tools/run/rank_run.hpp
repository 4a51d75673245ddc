#pragma once

#include "launch/session.hpp"
#include "moelane/placement.hpp"
#include "run/place.hpp"

namespace moelane::tools {

// The placement that the options name. Throws Error(argument).
Placement placement_of(const Options& options);

// What does not change from step to step: heap, way, multiprocessors.
void describe(const Options& options, const Engine& engine, const Place& place, RankReport& report);

// Adds one step's load to the report: rows of this rank's experts (`counts` has as many), and how many ranks
// its group's tokens visit.
void count_load(const Options& options, const Placement& placement, int rank, const GroupStep& own,
                const std::int32_t* counts, RankReport& report);

// `floor`: {"dispatch_us", "combine_us", ...}, or null.
void keep_floor(const nlohmann::json& floor, RankReport& report);

// Bytes of arena that `moelane run` needs for its floor.
std::size_t run_arena_bytes(const Options& options);

// `moelane run` on one rank: every step of the main job, each checked against the reference, then the floor.
void run_rank(const Options& options, const RoutingSource& routing, World world, const Arena& arena,
              RankReport& report);

}  // namespace moelane::tools
