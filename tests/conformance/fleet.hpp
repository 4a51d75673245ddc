#pragma once

#include <gtest/gtest.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/layout.hpp"
#include "core/signal.hpp"
#include "transport/transport.hpp"

// What the conformance suite needs to know of a transport. To try a new one: write a Member (one rank, as the
// tests see it) and a Fleet (which lets n ranks play the same part), and instantiate the suites of puts.hpp,
// waits.hpp and crowd.hpp for it, as shm_test.cpp does.
namespace moelane::conformance {

// Where things are in the heap of a test; every rank's is alike. A rank may be sent kWords words and kData
// bytes by every other.
struct Arena {
  static constexpr int kLanes = 2;
  static constexpr int kWords = 20;
  static constexpr std::size_t kData = (std::size_t{1} << 20) + 4096;

  explicit Arena(int ranks) : n(static_cast<std::uint64_t>(ranks)) {}
  std::uint64_t bell(int lane) const { return control_bytes(static_cast<int>(n)) + std::uint64_t(lane) * 64; }
  std::uint64_t word(int kind, int source) const {
    return bell(kLanes) + (static_cast<std::uint64_t>(kind) * n + static_cast<std::uint64_t>(source)) * 8;
  }
  std::uint64_t data(int source) const {
    return (word(kWords, 0) + 4095) / 4096 * 4096 + static_cast<std::uint64_t>(source) * kData;
  }
  std::size_t bytes() const { return data(static_cast<int>(n)); }

  std::uint64_t n;
};

enum class Stage : std::uint8_t {
  usual,  // as an engine would wait
  spin,   // for long, before anything else: where two ranks have to meet within nanoseconds
  yield,  // without spinning, and never sleeping
  sleep,  // at once
};

struct Patience {
  double seconds = 30;  // the bound of the lane's waits, from the call of lane()
  Stage stage = Stage::usual;
  double nap = 5;  // longest single sleep: long, so that nothing passes because a clock woke it
};

// One rank. lane() sets how the lane waits from now on; a lane belongs to one thread at a time.
template <class M>
concept Member = requires(M& m, const M& c, int n, std::uint64_t offset, void* to, std::byte* there,
                          const void* from, std::size_t bytes, const Patience& patience) {
  requires Transport<typename M::Handle>;
  { c.rank() } -> std::same_as<int>;
  { c.ranks() } -> std::same_as<int>;
  { m.lane(n, patience) } -> std::same_as<const typename M::Handle&>;
  m.barrier();
  m.abort(n);                                          // ends the waits of lane n, from another thread
  m.leave(n);                                          // farewell to rank n
  m.forget(n);                                         // the farewell of rank n to this one
  { c.late_wakes(n) } -> std::same_as<std::uint64_t>;  // of lane n
  m.write(offset, from, bytes);                        // the own heap
  m.read(offset, to, bytes);
  m.store(there, from, bytes);  // plain stores to where a peer_pointer() leads
};

// run() returns when all ranks have played their part and fails the test for every expectation that failed in
// one.
template <class F>
concept Fleet = Member<typename F::Member> &&
    requires(int ranks, const std::function<void(typename F::Member&)>& part) {
  { F::kHidden } -> std::convertible_to<bool>;  // peers' heaps are kept from the ranks
  F::run(ranks, part);
};

inline const char* name_of(Outcome outcome) {
  constexpr const char* kNames[] = {"reached", "timed out", "aborted", "peer left", "contradicted"};
  return kNames[static_cast<int>(outcome)];
}

inline testing::AssertionResult ended(const Seen& seen, Outcome expected) {
  if (seen.outcome == expected) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the wait ended with '" << name_of(seen.outcome) << "' instead of '"
                                     << name_of(expected) << "', seeing " << std::hex << seen.word;
}

}  // namespace moelane::conformance
