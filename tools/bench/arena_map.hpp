#pragma once

#include <cstddef>

#include "cli/options.hpp"

namespace moelane::tools {

// Where things lie in the arena for one set of buffers: floors and baselines move the same rows as the
// engine, to places as far apart. Offsets; every rank's part has the same shape.
struct ArenaMap {
  ArenaMap(const Options& options, int max_local_experts, int sets);

  std::size_t x(int set, int rank, int token) const { return part(set, rank) + x_ + u(token) * slot; }
  std::size_t placed(int set, int rank, int local, int row) const {
    return part(set, rank) + placed_ + (u(local) * expert_rows_ + u(row)) * slot;
  }
  std::size_t slot_of(int set, int rank, int source, int token) const {
    return part(set, rank) + slots_ + (u(source) * share_ + u(token)) * slot;
  }
  // Slots and answers to be read, which nobody writes meanwhile: floors have no signals to wait for.
  std::size_t arrived(int set, int rank, int source, int token) const {
    return slot_of(set, rank, source, token) + arrived_ - slots_;
  }
  std::size_t came_back(int set, int rank, int token, int k) const {
    return returned(set, rank, token, k) + came_back_ - returned_;
  }
  std::size_t answer(int set, int rank, int local, int row) const {
    return part(set, rank) + answers_ + (u(local) * expert_rows_ + u(row)) * answer_bytes;
  }
  std::size_t returned(int set, int rank, int token, int k) const {
    return part(set, rank) + returned_ + (u(token) * topk_ + u(k)) * answer_bytes;
  }
  std::size_t out(int set, int rank, int token) const {
    return part(set, rank) + out_ + u(token) * out_bytes;
  }
  std::size_t bytes() const { return part(sets_, 0); }

  std::size_t slot, answer_bytes, out_bytes;  // of a row with its scales, of an answer, of an output row

 private:
  static std::size_t u(int value) { return static_cast<std::size_t>(value); }
  std::size_t part(int set, int rank) const { return (u(set) * ranks_ + u(rank)) * part_; }

  std::size_t ranks_, share_, topk_, expert_rows_;
  int sets_;
  std::size_t x_ = 0, placed_ = 0, slots_ = 0, answers_ = 0, returned_ = 0, out_ = 0, arrived_ = 0,
              came_back_ = 0, part_ = 0;
};

}  // namespace moelane::tools
