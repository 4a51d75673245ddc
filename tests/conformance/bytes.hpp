#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace moelane::conformance {

inline std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return mix(mix(mix(a) + b) + c);
}

// Bytes that only their seed tells.
inline std::vector<unsigned char> bytes_of(std::uint64_t seed, std::size_t bytes) {
  std::vector<unsigned char> made(bytes + 8);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = mix(seed + i);
    std::memcpy(made.data() + i, &word, 8);
  }
  made.resize(bytes);
  return made;
}

}  // namespace moelane::conformance
