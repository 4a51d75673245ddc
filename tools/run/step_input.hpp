#pragma once

#include <array>

#include "moelane/engine.hpp"
#include "routing/workload.hpp"
#include "run/rank_device.hpp"

namespace moelane::tools {

// What a group brings, where the engine reads it: on CPU ranks the GroupStep's own memory, which has to stay
// there; on a card a copy, at the same addresses for every step.
class StepInput {
 public:
  StepInput() = default;
  StepInput(const RankDevice& device, const Config& config);

  void load(const RankDevice& device, const Config& config, const GroupStep& step);
  int tokens() const { return tokens_; }

  // `device_count`, for graphs that serve other steps too: tensors as large as may be, and how many tokens
  // there are in memory of the card.
  DispatchInput view(bool device_count) const;

 private:
  DispatchInput in_;
  std::int32_t tokens_ = 0, most_ = 0;
  std::array<gpu::Memory, 5> memory_;  // x, scales, ids, weights, tokens
};

}  // namespace moelane::tools
