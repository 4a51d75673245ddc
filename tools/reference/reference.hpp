#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "moelane/config.hpp"
#include "routing/workload.hpp"

// What dispatch and combine have to give, written plainly from the definition of the job. It shares no code
// with the protocol: no layout, placement, arithmetic or conversion of the library.
namespace moelane::tools {

// A dispatched row: it stands at `row` (of expert `local` in the padded layout, of the output otherwise). In
// the ranked layout it is the token's only row, and `local` and `k` are those of its first expert at this
// rank.
struct ExpectedRow {
  std::int32_t local, row, group, token, k;
};

struct ExpectedDispatch {
  std::vector<ExpectedRow> rows;      // those for which there is room
  std::vector<std::int32_t> counts;   // [local experts], rows present (ranked: pairs of a row present and k)
  std::vector<std::int32_t> offsets;  // contiguous: [local experts + 1]
  std::int32_t row_count = 0;         // ranked
  bool overflow = false;
};

// `rank_of`: [experts]. `groups`: the step's input of every group. `capacity`: rows of each expert or in all.
ExpectedDispatch expected_dispatch(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                                   const std::vector<GroupStep>& groups, std::int32_t capacity);

// Which rows (token, k) of one group found no room at their ranks, whose outputs have `capacities[rank]`
// rows: what expected_combine takes. In the ranked layout only the first k of a rank is marked.
std::vector<bool> dropped_rows(const Config& config, std::span<const std::int32_t> rank_of, int group,
                               const std::vector<GroupStep>& groups,
                               std::span<const std::int32_t> capacities);

// The combined output of one group with the toy experts, dense [tokens, hidden] of out_dtype. `old`: the
// previous output, dense, to accumulate on, or null. `dropped[t * topk + k]` (may be empty) marks rows that
// found no room. Ranked layout: y is summed over a rank's experts by toy_experts_ranked, and taken with
// weight 1 at the first k that names the rank; partial_sums: likewise, summed from the kept rows, in bf16.
std::vector<std::byte> expected_combine(const Config& config, std::span<const std::int32_t> rank_of,
                                        const GroupStep& group, const std::byte* old,
                                        const std::vector<bool>& dropped);

// The number of bytes that differ and, for people, where the first difference is.
struct Difference {
  std::int64_t bytes = 0;
  std::string first;
};

// What a rank has after dispatch, as plain pointers and byte strides.
struct DispatchedView {
  const std::byte* x = nullptr;
  std::int64_t expert_stride = 0, row_stride = 0;
  const std::byte* scales = nullptr;
  std::int64_t scale_expert_stride = 0, scale_row_stride = 0, scale_column_stride = 0;
  const std::int32_t *counts = nullptr, *offsets = nullptr, *row_count = nullptr;
  const std::int32_t* ids = nullptr;  // ranked, dense [rows, topk]
  const float* weights = nullptr;
};

Difference compare_dispatch(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                            const std::vector<GroupStep>& groups, const ExpectedDispatch& expected,
                            const DispatchedView& got);

}  // namespace moelane::tools
