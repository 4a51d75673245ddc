#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moelane {

// Which rank holds which expert: every expert lives on exactly one rank; a rank may hold any number, none
// included. Expert ids are physical ids: replicas of a logical expert are experts of their own. The experts
// of a rank are numbered locally 0, 1, ... in the order of their ids.
class Placement {
 public:
  // Contiguous blocks as even as possible: the first `experts % ranks` ranks hold one expert more.
  static Placement even(int experts, int ranks);

  // A caller's table: `rank_of[e]` in [0, ranks) for every expert. Throws Error(argument) naming the entry.
  static Placement table(std::vector<std::int32_t> rank_of, int ranks);

  int experts() const { return static_cast<int>(rank_of_.size()); }
  int ranks() const { return static_cast<int>(first_.size()) - 1; }

  std::span<const std::int32_t> rank_of() const { return rank_of_; }    // [experts]: the rank that holds it
  std::span<const std::int32_t> local_of() const { return local_of_; }  // [experts]: its local number there
  // The experts of one rank, ascending.
  std::span<const std::int32_t> experts_of(int rank) const;
  int local_experts(int rank) const { return static_cast<int>(experts_of(rank).size()); }
  // The largest number of experts on any rank: what symmetric tensors must be sized for.
  int max_local_experts() const;

  // Equal tables have equal fingerprints; ranks compare them in every step.
  std::uint64_t fingerprint() const { return fingerprint_; }

  // The same tables as plain arrays, for code shared with the GPU: `first` [ranks + 1] indexes `experts`
  // [experts].
  std::span<const std::int32_t> first() const { return first_; }
  std::span<const std::int32_t> by_rank() const { return by_rank_; }

 private:
  Placement(std::vector<std::int32_t> rank_of, int ranks);

  std::vector<std::int32_t> rank_of_, local_of_, first_, by_rank_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace moelane
