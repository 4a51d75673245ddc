#pragma once

#include <cstddef>
#include <cstdint>

// What travels in one message between two ranks: records, one behind the other, each with its bytes behind
// it. A rank's records for one peer arrive in the order in which they were given; signals are strong for
// that.
namespace moelane::mpi {

enum class What : std::uint32_t {
  data,    // bytes for a heap; the signal comes in a later record
  set,     // bytes for a heap (none, too), then a word is set
  add,     //   or added to
  gather,  // bytes of an exchange of the world
  bye,     // the last of this rank
};

struct Record {
  What what = What::data;
  std::uint32_t heaps = 0;   // which of the world's heaps, in the order in which they were mapped
  std::uint64_t offset = 0;  // in the peer's heap, for the bytes
  std::uint64_t bytes = 0;
  std::uint64_t word = 0;  // offset
  std::uint64_t value = 0;
};

// A message is at most this long. Measured (docs/performance.md): shorter ones cost their number, longer ones
// are no faster and leave the receiver idle until they are whole.
inline constexpr std::size_t kMessageBytes = std::size_t{128} << 10;

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace moelane::mpi
