#pragma once

#include <cstdint>
#include <vector>

#include "moelane/engine.hpp"
#include "options.hpp"
#include "reference.hpp"

namespace moelane::tools {

// What one lane of one rank reads and writes in a step: symmetric tensors for rows, plain memory for the
// rest.
struct StepBuffers {
  TensorView x, scales, ids, weights;  // dispatch outputs
  TensorView expert_rows;
  std::vector<std::int32_t> counts, offsets, row_count;
  std::vector<std::byte> out;  // [max_tokens, hidden]

  DispatchOutput output() const;
  DispatchedView view(const Options& options) const;
};

// Symmetric bytes that `sets` StepBuffers on one lane take, for a placement with this many experts on a rank.
std::size_t symmetric_bytes(const Options& options, int max_local_experts, int sets);

StepBuffers allocate_buffers(Engine& engine, const Options& options, int lane);

// The caller's input as the engine takes it.
DispatchInput input_of(const Config& config, const GroupStep& step);

// Runs this rank's toy experts over the dispatched rows.
void run_experts(const Options& options, const Placement& placement, int rank, StepBuffers& buffers);

// xxHash of what was dispatched to a rank: counts and, in order, every row with its scales (ranked: ids and
// weights).
std::uint64_t digest_dispatch(const Options& options, int local_experts, const StepBuffers& buffers);
std::uint64_t digest_bytes(const void* data, std::size_t bytes, std::uint64_t seed);

}  // namespace moelane::tools
