#include "moelane/placement.hpp"

#include <algorithm>
#include <string>

#include "moelane/error.hpp"

namespace moelane {
namespace {

void check_counts(int experts, int ranks) {
  if (experts < 1 || experts > 65536) {
    throw Error(ErrorKind::argument, "experts is " + std::to_string(experts) + ", allowed are 1 to 65536");
  }
  if (ranks < 1 || ranks > 1024) {
    throw Error(ErrorKind::argument, "ranks is " + std::to_string(ranks) + ", allowed are 1 to 1024");
  }
}

}  // namespace

Placement Placement::even(int experts, int ranks) {
  check_counts(experts, ranks);
  std::vector<std::int32_t> rank_of;
  rank_of.reserve(static_cast<std::size_t>(experts));
  for (int rank = 0; rank < ranks; ++rank) {
    rank_of.insert(rank_of.end(),
                   static_cast<std::size_t>(experts / ranks + (rank < experts % ranks ? 1 : 0)), rank);
  }
  return Placement(std::move(rank_of), ranks);
}

Placement Placement::table(std::vector<std::int32_t> rank_of, int ranks) {
  check_counts(static_cast<int>(std::min<std::size_t>(rank_of.size(), 1 << 20)), ranks);
  for (std::size_t e = 0; e < rank_of.size(); ++e) {
    if (rank_of[e] < 0 || rank_of[e] >= ranks) {
      throw Error(ErrorKind::argument, "placement puts expert " + std::to_string(e) + " on rank " +
                                           std::to_string(rank_of[e]) + ", allowed are 0 to " +
                                           std::to_string(ranks - 1));
    }
  }
  return Placement(std::move(rank_of), ranks);
}

Placement::Placement(std::vector<std::int32_t> rank_of, int ranks) : rank_of_(std::move(rank_of)) {
  first_.assign(static_cast<std::size_t>(ranks) + 1, 0);
  for (const std::int32_t rank : rank_of_) ++first_[static_cast<std::size_t>(rank) + 1];
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) first_[r + 1] += first_[r];
  std::vector<std::int32_t> next(first_.begin(), first_.end() - 1);
  local_of_.resize(rank_of_.size());
  by_rank_.resize(rank_of_.size());
  // FNV-1a over the table and the number of ranks, ended by a finaliser so that every bit depends on all.
  std::uint64_t hash = (0xcbf29ce484222325ULL ^ static_cast<std::uint64_t>(ranks)) * 0x100000001b3ULL;
  for (std::size_t e = 0; e < rank_of_.size(); ++e) {
    const auto rank = static_cast<std::size_t>(rank_of_[e]);
    local_of_[e] = next[rank] - first_[rank];
    by_rank_[static_cast<std::size_t>(next[rank]++)] = static_cast<std::int32_t>(e);
    hash = (hash ^ static_cast<std::uint64_t>(rank + 1)) * 0x100000001b3ULL;
  }
  hash ^= hash >> 31;
  hash *= 0x9e3779b97f4a7c15ULL;
  fingerprint_ = hash ^ hash >> 29;
}

std::span<const std::int32_t> Placement::experts_of(int rank) const {
  if (rank < 0 || rank >= ranks()) {
    throw Error(ErrorKind::argument,
                "rank is " + std::to_string(rank) + ", allowed are 0 to " + std::to_string(ranks() - 1));
  }
  const auto r = static_cast<std::size_t>(rank);
  return std::span(by_rank_).subspan(static_cast<std::size_t>(first_[r]),
                                     static_cast<std::size_t>(first_[r + 1] - first_[r]));
}

int Placement::max_local_experts() const {
  int most = 0;
  for (int rank = 0; rank < ranks(); ++rank) most = std::max(most, local_experts(rank));
  return most;
}

}  // namespace moelane
