#pragma once

#include <cstdint>
#include <vector>

#include "cli/options.hpp"
#include "moelane/placement.hpp"

namespace moelane::tools {

// One row that a rank sends, and where it belongs.
struct RowMove {
  std::int32_t token, index;  // of the group; of the share that this rank sends
  std::int32_t k, peer, local, row;
};

// The moves of one set, as one rank needs them.
struct RowMoves {
  std::vector<std::vector<RowMove>> sent;      // by token of the own share
  std::vector<std::vector<RowMove>> combined;  // by token of the own group
  // put: rows of every source and share index that this rank received
  struct Received {
    std::int32_t source, index, group, token;
    std::vector<RowMove> places;  // peer: this rank
  };
  std::vector<Received> received;
};

RowMoves row_moves_of(const Options& options, const Placement& placement, int rank,
                      const std::vector<GroupStep>& groups);

}  // namespace moelane::tools
