#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "moelane/config.hpp"
#include "routing/workload.hpp"

// What dispatch has to give, written plainly from the definition of the job: who gets which row, in which
// place. It shares no code with the protocol: no layout or placement of the library.
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

// The experts of a rank, ascending: local number -> id. `rank_of`: [experts].
std::vector<std::int32_t> experts_of(std::span<const std::int32_t> rank_of, int rank);

// `groups`: the step's input of every group. `capacity`: rows of each expert or in all.
ExpectedDispatch expected_dispatch(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                                   const std::vector<GroupStep>& groups, std::int32_t capacity);

// Which rows (token, k) of one group found no room at their ranks, whose outputs have `capacities[rank]`
// rows: what expected_combine takes. In the ranked layout only the first k of a rank is marked.
std::vector<bool> dropped_rows(const Config& config, std::span<const std::int32_t> rank_of, int group,
                               const std::vector<GroupStep>& groups,
                               std::span<const std::int32_t> capacities);

}  // namespace moelane::tools
