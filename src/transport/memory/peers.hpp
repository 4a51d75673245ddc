#pragma once

#include <cstddef>
#include <cstdint>

#include "core/layout.hpp"
#include "transport/memory/waiter.hpp"
#include "transport/transport.hpp"

namespace moelane {

// The handle of both CPU transports: every peer's heap is mapped into this address space. Signals are strong:
// one store publishes all that was written before. A waiter that sleeps leaves the name of its word in the
// lane's bell, and only the signal of that word rings it.
class MemoryPeers {
 public:
  static constexpr bool kStrong = true;

  // `heaps`: base of every rank's heap, alive as long as the handle. `bell`: offset of the lane's bell (32
  // bits). `addressable` false hides the peers' heaps from the protocol, which then sends everything by puts.
  MemoryPeers(std::byte* const* heaps, int rank, int ranks, std::uint64_t bell, bool addressable,
              Waiter* waiter)
      : heaps_(heaps), bell_(bell), waiter_(waiter), rank_(rank), ranks_(ranks), addressable_(addressable) {}

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::byte* peer_pointer(int peer) const { return addressable_ || peer == rank_ ? heaps_[peer] : nullptr; }

  void put_signal(int peer, std::uint64_t offset, const void* source, std::size_t bytes, std::uint64_t word,
                  std::uint64_t value, SignalOp op) const;
  void signal(int peer, std::uint64_t word, std::uint64_t value, SignalOp op) const;
  void signal_many(std::uint64_t word, std::uint64_t value) const;
  Seen wait_until(const Wait& wait) const;

  // Wakes whoever sleeps on the lane's bell of `peer`, for a reason other than a signal.
  void ring(int peer) const;

 private:
  Seen wait_slowly(const Wait& wait) const;

  std::byte* const* heaps_;
  std::uint64_t bell_;
  Waiter* waiter_;
  int rank_, ranks_;
  bool addressable_;
};

static_assert(Transport<MemoryPeers>);

}  // namespace moelane
