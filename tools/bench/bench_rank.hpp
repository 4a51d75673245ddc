#pragma once

#include "launch/run_ranks.hpp"
#include "routing/routing.hpp"

namespace moelane::tools {

// Bytes of arena that `moelane bench` needs for its floor and baselines.
std::size_t bench_arena_bytes(const Options& options);

// `moelane bench` on one rank: warm-up, timed steps over rotating buffers, the floor, and the baselines if
// asked for. The first and the last use of every set of buffers is checked against the reference.
void bench_rank(const Options& options, const RoutingSource& routing, World world, const Arena& arena,
                RankReport& report);

}  // namespace moelane::tools
