#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "launch/run_ranks.hpp"
#include "run/rank_context.hpp"

namespace moelane::tools {

struct BaselineInput {
  RankContext& rank;
  const Arena& arena;
  std::size_t begin;                     // first byte of the arena that is free for baselines
  const std::vector<GroupStep>& groups;  // of one step
  int repeats;
};

// Bytes of arena that the baselines need. Throws Error(argument) for jobs that they cannot do.
std::size_t baseline_bytes(const Options& options, const Placement& placement);

// Times the standard ways over the same shared memory, with the same routing and toy experts, and checks that
// their result is the right one, bit for bit: a list of {name, us: {median}, dispatch_us, combine_us}.
nlohmann::json measure_baselines(const BaselineInput& input);

}  // namespace moelane::tools
