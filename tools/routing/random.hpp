#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>

namespace moelane::tools {

// What a sequence of random values is for. Two uses of one stream would be correlated.
namespace stream {
inline constexpr std::uint64_t routing_ids = 1;
inline constexpr std::uint64_t routing_weights = 2;
inline constexpr std::uint64_t popularity = 3;
inline constexpr std::uint64_t first_free = 16;
}  // namespace stream

// Random values that are the same on every machine and standard library: value n is a fixed function of
// (seed, step, group, stream, n), made of 64-bit integer arithmetic only. The standard's engines would do,
// but its distributions differ between libraries. Not for secrets.
class Random {
 public:
  constexpr Random(std::uint64_t seed, std::uint64_t step, std::uint64_t group, std::uint64_t stream) {
    // One after the other, so that (step 1, group 0) and (step 0, group 1) have nothing in common.
    for (const std::uint64_t word : {seed, step, group, stream}) start_ = mix(start_ ^ mix(word + golden));
    whitening_ = mix(~start_);
  }

  // Uniform in [0, 2^64).
  constexpr std::uint64_t next() {
    count_ += golden;
    // Mixed twice: with one round, streams whose starts lie a few steps apart would be shifted copies.
    return mix(whitening_ ^ mix(start_ + count_));
  }

  // Uniform in [0, limit), limit >= 1. Values past the limit are thrown away, since a remainder would favour
  // small values; less than one in two is.
  constexpr std::uint64_t below(std::uint64_t limit) {
    if (limit <= 1) return 0;
    const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(limit - 1);
    std::uint64_t value = next() & mask;
    while (value >= limit) value = next() & mask;
    return value;
  }

  // Uniform in [0, 1), a multiple of 2^-24: every such value is exact in a float.
  constexpr float unit() { return static_cast<float>(next() >> 40) * 0x1p-24F; }

 private:
  // 2^64 divided by the golden ratio: odd, and its multiples spread evenly.
  static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;

  // A bijection in which every input bit changes each output bit half of the time (constants: splitmix64's).
  static constexpr std::uint64_t mix(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31);
  }

  std::uint64_t start_ = 0;
  std::uint64_t whitening_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace moelane::tools
