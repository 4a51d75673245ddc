#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/rows.hpp"

// The loop of weighted_sum, written once over a vector type V (see row_body.hpp for V and for the pragma in
// force).
namespace moelane::cpu {

template <typename V, DType type>
inline constexpr int kRegsPerLine = static_cast<int>(64 / size_of(type)) / V::kWidth;

// Bytes up to the next multiple of 64.
template <typename V>
std::size_t to_boundary(const void* p) {
  return (0 - reinterpret_cast<std::uintptr_t>(p)) & 63;
}

// `#pragma GCC unroll` below keeps arrays of registers in registers: -O2 alone leaves loop and array.
template <typename V, DType In, DType Out>
struct Sum {
  static constexpr std::int64_t kBlock =
      64;  // elements summed over all rows at a time: two or four lines of a row
  static constexpr int kRegs = kBlock / V::kWidth;
  static constexpr std::int64_t kIn = static_cast<std::int64_t>(size_of(In));
  static constexpr std::int64_t kOut = static_cast<std::int64_t>(size_of(Out));
  static constexpr std::int64_t kAhead =
      384;  // bytes to prefetch ahead in each row; see bench/cpu_rows_bench.cpp

  using Sums = typename V::Reg[kRegs];

  [[gnu::always_inline]] static inline void clear(Sums& sums) {
#pragma GCC unroll 16
    for (int r = 0; r < kRegs; ++r) sums[r] = V::broadcast(0.0F);
  }

  [[gnu::always_inline]] static inline void add_row(Sums& sums, float weight, const char* row) {
    const typename V::Reg w = V::broadcast(weight);
#pragma GCC unroll 16
    for (int r = 0; r < kRegs; ++r) {
      sums[r] = V::fma(w, V::template load<In>(row + r * V::kWidth * kIn), sums[r]);
    }
  }

  [[gnu::always_inline]] static inline void finish(Sums& sums, bool accumulate, char* out, bool stream) {
    if (accumulate) {
#pragma GCC unroll 16
      for (int r = 0; r < kRegs; ++r) {
        sums[r] = V::add(sums[r], V::template load<Out>(out + r * V::kWidth * kOut));
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRegs; r += kRegsPerLine<V, Out>) {
      const typename V::Line line = V::template pack<Out>(sums + r);
      stream ? V::stream(out, line) : V::store(out, line);
      out += 64;
    }
  }

  static void block(const SumArgs& args, std::int64_t first, bool ahead, bool stream) {
    Sums sums;
    clear(sums);
    for (int i = 0; i < args.n; ++i) {
      const char* row = static_cast<const char*>(args.rows[i]) + first * kIn;
      if (ahead) {
        for (std::int64_t b = 0; b < kBlock * kIn; b += 64) __builtin_prefetch(row + kAhead + b);
      }
      add_row(sums, args.weights[i], row);
    }
    finish(sums, args.accumulate, static_cast<char*>(args.out) + first * kOut, stream);
  }

  // A block of which only `count` elements exist: it goes through buffers that hold a whole one.
  static void part(const SumArgs& args, std::int64_t first, std::int64_t count) {
    Sums sums;
    clear(sums);
    alignas(64) char row[kBlock * kIn] = {};
    for (int i = 0; i < args.n; ++i) {
      const char* from = static_cast<const char*>(args.rows[i]) + first * kIn;
      __builtin_memcpy(row, from, static_cast<std::size_t>(count * kIn));
      add_row(sums, args.weights[i], row);
    }
    alignas(64) char result[kBlock * kOut] = {};
    char* out = static_cast<char*>(args.out) + first * kOut;
    if (args.accumulate) __builtin_memcpy(result, out, static_cast<std::size_t>(count * kOut));
    finish(sums, args.accumulate, result, false);
    __builtin_memcpy(out, result, static_cast<std::size_t>(count * kOut));
  }

  static void run(const SumArgs& args) {
    std::int64_t first = 0;
    bool stream = args.store == Store::stream;
    if (stream) {
      const auto head = static_cast<std::int64_t>(to_boundary<V>(args.out));
      stream = head % kOut == 0;  // else no element ever starts at a boundary
      if (stream && head != 0) {
        first = head / kOut < args.hidden ? head / kOut : args.hidden;
        part(args, 0, first);
      }
    }
    for (; first + kBlock <= args.hidden; first += kBlock) {
      // Nothing past the end of the rows is brought in: it would push out what somebody needs.
      block(args, first, first * kIn + kAhead < args.hidden * kIn, stream);
    }
    if (first < args.hidden) part(args, first, args.hidden - first);
  }
};

}  // namespace moelane::cpu
