#include "bench/row_stores.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/rows.hpp"

namespace moelane::tools {
namespace {

void copy_by_string_moves(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
  std::memcpy(to, from, bytes);
#endif
}

// Reads every row from end to end, as fast as loads go, and writes one output row: no arithmetic.
using Line = long long __attribute__((vector_size(64), aligned(1)));
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("default", "arch=haswell", "arch=skylake-avx512")))
#endif
void read_rows(const void* const* rows, int n, std::size_t bytes, void* left_over) {
  Line sum{};
  for (int i = 0; i < n; ++i) {
    const auto* row = static_cast<const char*>(rows[i]);
    for (std::size_t at = 0; at + 64 <= bytes; at += 64) sum ^= *reinterpret_cast<const Line*>(row + at);
  }
  std::memcpy(left_over, &sum, sizeof sum);
}

}  // namespace

std::vector<std::pair<std::string, CopyRow>> ways_to_copy() {
  const auto each = [](auto one) {
    return [one](void* const* to, int n, const void* from, std::size_t bytes) {
      for (int i = 0; i < n; ++i) one(to[i], from, bytes);
    };
  };
  return {{"memcpy", each([](void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); })},
          {"rep movsb", each(copy_by_string_moves)},
          {"streaming", each([](void* to, const void* from, std::size_t n) {
             cpu::copy(to, from, n, cpu::Store::stream);
           })},
          {"streaming to all", [](void* const* to, int n, const void* from, std::size_t bytes) {
             cpu::copy_to_many(to, n, from, bytes, cpu::Store::stream);
           }}};
}

std::vector<std::pair<std::string, SumRows>> ways_to_sum(const Config& config) {
  const auto by_library = [&config](cpu::Store store) {
    return [&config, store](const void* const* rows, int n, void* out, std::size_t, std::size_t) {
      static const std::vector<float> weights(32, 0.125F);
      cpu::SumArgs args;
      args.rows = rows;
      args.weights = weights.data();
      args.n = n;
      args.in = config.combine_dtype;
      args.hidden = config.hidden;
      args.out = out;
      args.out_type = config.out_dtype;
      args.store = store;
      cpu::weighted_sum(args);
    };
  };
  return {{"sum, streaming", by_library(cpu::Store::stream)},
          {"sum, cached", by_library(cpu::Store::cached)},
          {"read row by row, streaming",
           [](const void* const* rows, int n, void* out, std::size_t bytes, std::size_t out_bytes) {
             alignas(64) char block[4096] = {};
             read_rows(rows, n, bytes, block);
             auto* to = static_cast<char*>(out);
             for (std::size_t at = 0; at < out_bytes; at += sizeof block) {
               cpu::copy(to + at, block, std::min(sizeof block, out_bytes - at), cpu::Store::stream);
             }
           }}};
}

}  // namespace moelane::tools
