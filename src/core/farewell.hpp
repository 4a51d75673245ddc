#pragma once

#include <cstdint>

// What a rank leaves at its peers when its engine ends, so that nobody waits the whole bound for it.
namespace moelane {

enum class Leaving : std::uint8_t { not_yet = 0, closed = 1, aborted = 2, failed = 3 };

constexpr std::uint64_t farewell_word(Leaving why, int blamed_rank) {
  return static_cast<std::uint64_t>(why) | static_cast<std::uint64_t>(blamed_rank + 1) << 8;
}
constexpr Leaving leaving_of(std::uint64_t word) { return static_cast<Leaving>(word & 0xFF); }
constexpr int blamed_of(std::uint64_t word) { return static_cast<int>(word >> 8) - 1; }

}  // namespace moelane
