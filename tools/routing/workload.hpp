#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "moelane/config.hpp"
#include "routing/routing.hpp"

namespace moelane::tools {

// What one DP group brings to one step. Rows and scales are dense.
struct GroupStep {
  int tokens = 0;
  std::vector<std::byte> x;       // [tokens, hidden] of config.dtype
  std::vector<std::byte> scales;  // [tokens, scale_columns] of scale_bytes (fp32 powers of two where 4)
  std::vector<std::int32_t> ids;  // [tokens, topk]
  std::vector<float> weights;     // [tokens, topk]
};

// How many tokens a group has in a step: a number, or one drawn from `low`..`high` for each group and step.
struct TokenRange {
  int low = 0, high = 0;
};

// Fresh random input for every step and group, a function of (seed, step, group) alone: finite values, never
// all zero.
class Workload {
 public:
  Workload(const Config& config, int ranks, const RoutingSource& routing, TokenRange tokens,
           std::uint64_t seed);
  int groups() const { return groups_; }
  int tokens(int step, int group) const;
  GroupStep make(int step, int group) const;
  // What the output holds before, to accumulate on: [max_tokens, hidden] of out_dtype, in (-1, 1).
  std::vector<std::byte> old_output(int step, int group) const;
  Routing routing(int step, int group) const;  // the same routing as make()'s, without rows

 private:
  Config config_;
  const RoutingSource* routing_;
  TokenRange tokens_;
  std::uint64_t seed_;
  int groups_;
};

}  // namespace moelane::tools
