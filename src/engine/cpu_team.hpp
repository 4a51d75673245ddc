#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/rows.hpp"
#include "protocol/lane.hpp"

namespace moelane {

// One thread does all the work of a CPU rank.
struct CpuTeam {
  cpu::Store store = cpu::Store::cached;

  int unit() const { return 0; }
  int units() const { return 1; }
  bool leader() const { return true; }
  void barrier() const {}
  bool last() const { return true; }
  void copy(void* to, const void* from, std::size_t bytes) const {
    cpu::copy(to, from, bytes, cpu::Store::cached);
  }
  void copy_many(void* const* to, int n, const void* from, std::size_t bytes) const {
    cpu::copy_to_many(to, n, from, bytes, store);
  }
  void prefetch(const void* from) const {
    if (store == cpu::Store::stream) cpu::prefetch(from, 512);
  }
  void prefetch_write(const void* to, std::int64_t bytes) const {
    if (store != cpu::Store::stream) return;
    for (std::int64_t at = 0; at < bytes; at += 64)
      __builtin_prefetch(static_cast<const char*>(to) + at, 1, 3);
  }
  void sum(const void* const* rows, const float* weights, int n, DType type, std::int64_t hidden, void* out,
           DType out_type, bool accumulate) const {
    cpu::SumArgs args{};
    args.rows = rows;
    args.weights = weights;
    args.n = n;
    args.in = type;
    args.hidden = hidden;
    args.out = out;
    args.out_type = out_type;
    args.accumulate = accumulate;
    args.store = store;
    cpu::weighted_sum(args);
  }
  void publish() const { cpu::store_fence(); }
};

static_assert(Team<CpuTeam>);

}  // namespace moelane
