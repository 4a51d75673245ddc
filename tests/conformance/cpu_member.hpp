#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "conformance/fleet.hpp"
#include "moelane/world.hpp"
#include "transport/memory/peers.hpp"
#include "transport/world_impl.hpp"

namespace moelane::conformance {

// A rank of the transports that map all heaps.
class CpuMember {
 public:
  using Handle = MemoryPeers;

  CpuMember(World world, bool addressable)
      : world_(std::move(world)),
        arena_(world_.size()),
        heaps_(world_.impl().map_heaps(arena_.data(0), arena_.bytes())),
        lanes_{make(0, addressable), make(1, addressable)} {}

  int rank() const { return world_.rank(); }
  int ranks() const { return world_.size(); }
  void barrier() { world_.barrier(); }

  const Handle& lane(int n, const Patience& patience) {
    Waiter& waiter = waiters_[at(n)];
    world_.impl().tune(waiter);
    if (patience.stage != Stage::usual) waiter.spins = patience.stage == Stage::spin ? 100'000 : 0;
    if (patience.stage == Stage::sleep) waiter.yield_ns = 0;
    if (patience.stage == Stage::yield) waiter.yield_ns = INT64_MAX;
    waiter.aborted = &aborted_[at(n)];
    waiter.deadline_ns = deadline_after(patience.seconds);
    waiter.nap_ns = static_cast<std::int64_t>(patience.nap * 1e9);
    return lanes_[at(n)];
  }

  void abort(int n) {
    aborted_[at(n)].store(true);
    lanes_[at(n)].ring(rank());
  }
  void leave(int peer) {
    for (const Handle& lane : lanes_) {
      lane.signal(peer, farewell(rank()), 1, SignalOp::set);
      lane.ring(peer);
    }
  }
  void forget(int peer) {
    const std::uint64_t nothing = 0;
    write(farewell(peer), &nothing, sizeof nothing);
  }
  std::uint64_t late_wakes(int n) const { return waiters_[at(n)].late_wakes.load(); }

  void write(std::uint64_t offset, const void* from, std::size_t bytes) {
    std::memcpy(heaps_.bases[at(rank())] + offset, from, bytes);
  }
  void read(std::uint64_t offset, void* to, std::size_t bytes) {
    std::memcpy(to, heaps_.bases[at(rank())] + offset, bytes);
  }
  void store(std::byte* there, const void* from, std::size_t bytes) { std::memcpy(there, from, bytes); }

 private:
  static std::size_t at(int n) { return static_cast<std::size_t>(n); }
  Handle make(int n, bool addressable) {
    return {heaps_.bases.data(), rank(), ranks(), arena_.bell(n), addressable, &waiters_[at(n)]};
  }

  World world_;
  Arena arena_;
  detail::Heaps heaps_;
  std::array<Waiter, Arena::kLanes> waiters_;
  std::array<std::atomic<bool>, Arena::kLanes> aborted_{};
  std::array<Handle, Arena::kLanes> lanes_;
};

static_assert(Member<CpuMember>);

}  // namespace moelane::conformance
