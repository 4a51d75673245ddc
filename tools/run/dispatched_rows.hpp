#pragma once

#include <cstdint>

#include "moelane/placement.hpp"
#include "run/step_buffers.hpp"

// What is done with the rows that a rank has after dispatch.
namespace moelane::tools {

// Brings what was dispatched to host memory.
void fetch_dispatched(const Options& options, const RankDevice& device, int local_experts,
                      const StepBuffers& buffers);

// Runs this rank's toy experts over the dispatched rows, on the host.
void run_experts(const Options& options, const RankDevice& device, const Placement& placement, int rank,
                 const StepBuffers& buffers);

// xxHash of what was dispatched to a rank: counts and, in order, every row with its scales (ranked: ids and
// weights).
std::uint64_t digest_dispatch(const Options& options, int local_experts, const StepBuffers& buffers);

}  // namespace moelane::tools
