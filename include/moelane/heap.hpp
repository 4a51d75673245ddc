#pragma once

#include <cstddef>

#include "moelane/config.hpp"

namespace moelane {

// How Config::mapped_bytes comes about: what one rank's heap is used for, in bytes, padding counted with the
// part in front of it.
struct HeapBreakdown {
  std::size_t control = 0;  // farewells, once for all lanes
  int lanes = 0;
  // Of each lane:
  std::size_t signals = 0;  // signal words, the bell that wakes sleepers, the lane's state
  std::size_t counts = 0;   // rows for each expert and rank, from every rank (direct way); running numbers
  std::size_t routing = 0;  // ids and weights of the own group, ids from every rank (put way), places of rows
  std::size_t staging = 0;  // rows on their way to heaps that cannot be addressed
  std::size_t slots = 0;    // dispatched rows (put way): groups * max_tokens
  std::size_t answers = 0;  // answers (put way): max_tokens * topk
  std::size_t symmetric = 0;  // the caller's tensors

  std::size_t of_a_lane() const { return signals + counts + routing + staging + slots + answers + symmetric; }
  std::size_t total() const { return control + static_cast<std::size_t>(lanes) * of_a_lane(); }
};

// Throws Error(argument) as Config::validate. total() is config.mapped_bytes(ranks).
HeapBreakdown heap_breakdown(const Config& config, int ranks);

}  // namespace moelane
