#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "conformance/fleet.hpp"
#include "moelane/world.hpp"
#include "transport/world_impl.hpp"

namespace moelane::conformance {

// The handle of transport peer as the host sees it: each operation is a kernel of one thread that does it on
// the card, on a stream of the lane's own, and is waited for.
class PeerCalls {
 public:
  static constexpr bool kStrong = true;

  PeerCalls(const detail::Heaps& heaps, int rank, const std::uint64_t* farewells);
  void bound(double seconds);  // of waits from now on
  void abort();

  int rank() const;
  int ranks() const;
  std::byte* peer_pointer(int peer) const;
  void put_signal(int peer, std::uint64_t offset, const void* source, std::size_t bytes, std::uint64_t word,
                  std::uint64_t value, SignalOp op) const;
  void signal(int peer, std::uint64_t word, std::uint64_t value, SignalOp op) const;
  void signal_many(std::uint64_t word, std::uint64_t value) const;
  Seen wait_until(const Wait& wait) const;

  void store(std::byte* there, const void* from, std::size_t bytes) const;
  void write(std::byte* to, const void* from, std::size_t bytes) const;
  void read(const std::byte* from, void* to, std::size_t bytes) const;

 private:
  struct Device;  // the handle itself and what it works with
  std::shared_ptr<Device> device_;
};
static_assert(Transport<PeerCalls>);

// Host memory that kernels read and write too, zeroed.
std::shared_ptr<void> shared_memory(std::size_t bytes);

// A rank on a card. Ranks are threads of one process.
class PeerMember {
 public:
  using Handle = PeerCalls;

  explicit PeerMember(World world);

  int rank() const { return world_.rank(); }
  int ranks() const { return world_.size(); }
  void barrier() { world_.barrier(); }

  const Handle& lane(int n, const Patience& patience) {
    lanes_[at(n)].bound(patience.seconds);
    return lanes_[at(n)];
  }
  void abort(int n) { lanes_[at(n)].abort(); }
  void leave(int peer) { farewell_of(peer, rank()).store(1); }
  void forget(int peer) { farewell_of(rank(), peer).store(0); }
  std::uint64_t late_wakes(int) const { return 0; }  // kernels do not sleep

  void write(std::uint64_t offset, const void* from, std::size_t bytes) {
    lanes_[0].write(lanes_[0].peer_pointer(rank()) + offset, from, bytes);
  }
  void read(std::uint64_t offset, void* to, std::size_t bytes) {
    lanes_[0].read(lanes_[0].peer_pointer(rank()) + offset, to, bytes);
  }
  void store(std::byte* there, const void* from, std::size_t bytes) { lanes_[0].store(there, from, bytes); }

 private:
  static std::size_t at(int n) { return static_cast<std::size_t>(n); }
  // What rank `whose` has heard from rank `of`.
  std::atomic_ref<std::uint64_t> farewell_of(int whose, int of) const {
    return std::atomic_ref(farewells_of_all_[at(whose)][of]);
  }

  World world_;
  detail::Heaps heaps_;
  std::shared_ptr<void> farewells_;               // [ranks]
  std::vector<std::uint64_t*> farewells_of_all_;  // [ranks]
  std::array<PeerCalls, Arena::kLanes> lanes_;
};
static_assert(Member<PeerMember>);

}  // namespace moelane::conformance
