#pragma once

#include <cstdint>

#include "cli/options.hpp"
#include "moelane/engine.hpp"
#include "reference/reference.hpp"
#include "run/place.hpp"
#include "run/step_input.hpp"

namespace moelane::tools {

// What one lane of one rank reads and writes in a step: symmetric tensors for rows, own memory for the rest.
struct StepBuffers {
  StepInput in;
  Tensor x, scales, ids, weights;     // dispatch outputs
  Tensor counts, offsets, row_count;  // int32
  Tensor expert_rows;
  Tensor out;  // [max_tokens, hidden]

  DispatchOutput output() const;
  DispatchedView view(const Options& options) const;
  TensorView result(std::int64_t tokens) const;  // the first rows of out
};

DType scale_type(const Config& config);

// Symmetric bytes that `sets` StepBuffers on one lane take, for a placement with this many experts on a rank.
std::size_t symmetric_bytes(const Options& options, int max_local_experts, int sets);

StepBuffers allocate_buffers(const Place& place, Engine& engine, const Options& options, int lane);

// Brings what was dispatched to host memory.
void fetch_dispatched(const Options& options, const Place& place, int local_experts,
                      const StepBuffers& buffers);

// Runs this rank's toy experts over the dispatched rows, on the host.
void run_experts(const Options& options, const Place& place, const Placement& placement, int rank,
                 const StepBuffers& buffers);

// xxHash of what was dispatched to a rank: counts and, in order, every row with its scales (ranked: ids and
// weights).
std::uint64_t digest_dispatch(const Options& options, int local_experts, const StepBuffers& buffers);
std::uint64_t digest_bytes(const void* data, std::size_t bytes, std::uint64_t seed);

}  // namespace moelane::tools
