#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "moelane/config.hpp"
#include "support/messy_routing.hpp"
#include "support/tensors.hpp"

namespace moelane::test {

enum class Calls { whole, split, mixed };
enum class Strides {
  dense,
  odd,
  crossed
};  // rows side by side; with gaps, unaligned; experts between each other's rows

// What happens in a test: everything that all ranks have to know, and nothing that one rank does.
struct Scene {
  Config config;
  int ranks = 2;
  std::uint64_t seed = 1;
  Calls calls = Calls::whole;
  Habits habits;
  std::shared_ptr<const tools::RoutingSource> routing;  // in place of the habits
  std::function<int(int step, int group)> tokens;       // not given: any number up to max_tokens, often none
  std::vector<std::vector<std::int32_t>> tables;  // rank of each expert, by step in turn; not given: even
  std::function<int(int rank)> capacity;          // rows of each expert or in all; not given: enough
  bool exact_experts = false;  // outputs have room for the own experts only, not for as many as any rank has
  bool accumulate = false;
  bool special_values = false;
  bool wide_ids = false;
  bool num_tokens = false;  // m is given beside larger tensors
  Strides strides = Strides::dense;
  Strides scale_strides = Strides::dense;
  double nap = 0;          // seconds that a rank may sleep before a call
  bool graphs = false;     // GPU ranks: each call is captured once and replayed; with num_tokens
  bool all_steps = false;  // GPU ranks: run() plays no more than a few otherwise

  int groups() const { return ranks / config.tp_size; }
  int tokens_of(int step, int group) const;
  std::vector<std::int32_t> table(int step) const;
  int most_local_experts() const;
  int capacity_of(int rank) const;
  std::vector<std::int32_t> capacities() const;
  tools::GroupStep input(int step, int group) const;
  Calls calls_of(int step, bool dispatch) const;  // whole or split

  // The tensors that may have to be symmetric, in the order of their allocation.
  struct Outputs {
    Spec x, scales, ids, weights, rows;
  };
  Outputs outputs(int rank, bool symmetric) const;
  // Sets config.symmetric_bytes to what these need, and config.num_sms, unless given, to what lets all calls
  // of all ranks run at once.
  void reserve();
};

std::vector<std::int32_t> experts_of(std::span<const std::int32_t> table, int rank);
DType scale_type(const Config& config);

}  // namespace moelane::test
