#pragma once

#include <cstddef>
#include <cstdint>

#include "core/layout.hpp"
#include "transport/memory/far.hpp"
#include "transport/memory/waiter.hpp"
#include "transport/transport.hpp"

namespace moelane {

// The handle of all CPU transports. Most peers' heaps, or all, are mapped into this address space: there one
// store publishes all that was written before. The others are reached by messages, which every wait drives.
// Signals are strong. A waiter that sleeps leaves the name of its word in the lane's bell, and only the
// signal of that word rings it; one that messages may reach naps for a moment at most.
class MemoryPeers {
 public:
  static constexpr bool kStrong = true;

  // `heaps`: base of every rank's heap, null where none is mapped, alive as long as the handle. `bell`:
  // offset of the lane's bell (32 bits). `addressable` false hides the peers' heaps from the protocol, which
  // then sends everything by puts. `far`: what carries puts where no heap is mapped, or (hidden) to all
  // peers; null where all are mapped.
  MemoryPeers(std::byte* const* heaps, int rank, int ranks, std::uint64_t bell, bool addressable,
              Waiter* waiter, Far* far = nullptr)
      : heaps_(heaps),
        bell_(bell),
        waiter_(waiter),
        far_(far),
        rank_(rank),
        ranks_(ranks),
        addressable_(addressable) {}

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
  bool is_far(int peer) const {
    return far_ != nullptr && peer != rank_ && (!addressable_ || heaps_[peer] == nullptr);
  }
  void progress() const {
    if (far_ != nullptr) far_->progress();
  }

  std::byte* const* heaps_;
  std::uint64_t bell_;
  Waiter* waiter_;
  Far* far_;
  int rank_, ranks_;
  bool addressable_;
};

static_assert(Transport<MemoryPeers>);

}  // namespace moelane
