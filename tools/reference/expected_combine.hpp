#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "moelane/config.hpp"
#include "routing/workload.hpp"

// What combine has to give, written plainly from the definition of the job. It shares no code with the
// protocol: no arithmetic or conversion of the library.
namespace moelane::tools {

// The combined output of one group with the toy experts, dense [tokens, hidden] of out_dtype. `old`: the
// previous output, dense, to accumulate on, or null. `dropped[t * topk + k]` (may be empty) marks rows that
// found no room. Ranked layout: y is summed over a rank's experts by toy_experts_ranked, and taken with
// weight 1 at the first k that names the rank; partial_sums: likewise, summed from the kept rows, in bf16.
std::vector<std::byte> expected_combine(const Config& config, std::span<const std::int32_t> rank_of,
                                        const GroupStep& group, const std::byte* old,
                                        const std::vector<bool>& dropped);

}  // namespace moelane::tools
