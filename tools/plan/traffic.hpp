#pragma once

#include <cstdint>
#include <vector>

#include "cli/options.hpp"
#include "moelane/placement.hpp"
#include "routing/routing.hpp"

// Who sends how much to whom, without sending anything.
namespace moelane::tools {

// A number for each pair of ranks: from, to.
class PairTable {
 public:
  explicit PairTable(int ranks) : ranks_(static_cast<std::size_t>(ranks)), values_(ranks_ * ranks_) {}
  double& at(int from, int to) {
    return values_[static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to)];
  }
  double at(int from, int to) const {
    return values_[static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to)];
  }

 private:
  std::size_t ranks_;
  std::vector<double> values_;
};

// What a step brings on average. `from` is the rank that sends a token for its group.
struct Traffic {
  explicit Traffic(int ranks) : picks(ranks), tokens(ranks), sent(static_cast<std::size_t>(ranks)) {}
  PairTable picks;           // (token, k) pairs whose expert lives at `to`: one row per expert
  PairTable tokens;          // tokens that picked any expert at `to`: one row per rank
  std::vector<double> sent;  // [ranks]: tokens that the rank sends
  std::vector<double> load;  // [experts]: rows of each expert
  double ranks_per_token = 0;
  int steps = 0;  // steps that were counted; 0: expected values
};

// For uniform routing, exactly: a token picks topk of the experts without replacement, so that rank r with n
// of E experts is among its ranks with probability 1 - C(E - n, K) / C(E, K).
Traffic expected_traffic(const Options& options, const Placement& placement);

// Counted from the routing that `moelane run` would use, for as many of its steps as take a second to draw.
Traffic counted_traffic(const Options& options, const Placement& placement, const RoutingSource& routing);

}  // namespace moelane::tools
