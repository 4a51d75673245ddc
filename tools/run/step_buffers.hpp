#pragma once

#include <cstdint>

#include "cli/options.hpp"
#include "moelane/engine.hpp"
#include "reference/compare_dispatch.hpp"
#include "run/rank_device.hpp"
#include "run/step_input.hpp"

namespace moelane::tools {

// What one lane of one rank reads and writes in a step: symmetric tensors for rows, own memory for the rest.
struct StepBuffers {
  StepInput in;
  MirroredTensor x, scales, ids, weights;     // dispatch outputs
  MirroredTensor counts, offsets, row_count;  // int32
  MirroredTensor expert_rows;
  MirroredTensor out;  // [max_tokens, hidden]

  DispatchOutput output() const;
  DispatchedView view(const Options& options) const;
  TensorView result(std::int64_t tokens) const;  // the first rows of out
};

DType scale_type(const Config& config);

// Symmetric bytes that `sets` StepBuffers on one lane take, for a placement with this many experts on a rank.
std::size_t symmetric_bytes(const Options& options, int max_local_experts, int sets);

StepBuffers allocate_buffers(const RankDevice& device, Engine& engine, const Options& options, int lane);

}  // namespace moelane::tools
