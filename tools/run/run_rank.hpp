#pragma once

#include "launch/run_ranks.hpp"
#include "routing/routing.hpp"

namespace moelane::tools {

// Bytes of arena that `moelane run` needs for its floor.
std::size_t run_arena_bytes(const Options& options);

// `moelane run` on one rank: every step of the main job, each checked against the reference, then the floor.
void run_rank(const Options& options, const RoutingSource& routing, World world, const Arena& arena,
              RankReport& report);

}  // namespace moelane::tools
