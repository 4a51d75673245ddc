#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/farewell.hpp"
#include "core/signal.hpp"
#include "cuda/ptx.cuh"
#include "cuda/words.cuh"
#include "transport/device_transport.cuh"

// The device side of transport peer: every heap is addressable, so a put is a copy and a signal is a store.
namespace moelane {

// What a waiting kernel looks at beside the awaited word. It lies in host memory, so that the host can be
// heard while kernels spin and when a card is lost; a look costs a microsecond and is taken only now and
// then.
struct HostWatch {
  const std::uint64_t* farewells = nullptr;  // [ranks], written by peers' hosts
  const std::uint32_t* aborted = nullptr;    // by the own host
};

struct PeerHandle {
  static constexpr bool kStrong = true;
  static constexpr Reach kReach = Reach::all;
  static constexpr int kMaxRanks = 64;

  // Half a kilobyte of every kernel's arguments. It stays there because arguments lie in constant memory: the
  // base of a peer comes from the constant cache, which fetch_arguments() has filled. From a table in the
  // card's memory it would come by one more load in a row, which misses its caches in front of the first
  // signal of every call: half a microsecond, where calls with few tokens last a few.
  std::byte* bases[kMaxRanks];
  int me, size;
  HostWatch watch;
  std::uint64_t bound_ns;  // of a wait
  bool one_card;           // all ranks are streams of one process on one card

  // As system_fence(), for the ranks alone. Then relaxed stores will do for any number of signals.
  __device__ void fence() const {
    if (one_card) {
      cuda::atomic_thread_fence(cuda::memory_order_acq_rel, cuda::thread_scope_device);
    } else {
      gpu::system_fence();
    }
  }

  __device__ int rank() const { return me; }
  __device__ int ranks() const { return size; }
  __device__ std::byte* peer_pointer(int peer) const { return bases[peer]; }
  __device__ std::uint64_t* word(int peer, std::uint64_t offset) const {
    return reinterpret_cast<std::uint64_t*>(bases[peer] + offset);
  }

  // By one thread. Kernels that move many rows write them to peer_pointer(), then fence and signal.
  __device__ void put_signal(int peer, std::uint64_t offset, const void* source, std::size_t bytes,
                             std::uint64_t at, std::uint64_t value, SignalOp op) const {
    const auto* from = static_cast<const std::byte*>(source);
    for (std::size_t i = 0; i < bytes; ++i) bases[peer][offset + i] = from[i];
    signal(peer, at, value, op);
  }
  __device__ void signal(int peer, std::uint64_t at, std::uint64_t value, SignalOp op) const {
    gpu::Word to(*word(peer, at));
    if (op == SignalOp::set) {
      to.store(value, cuda::memory_order_release);
    } else {
      to.fetch_add(value, cuda::memory_order_acq_rel);
    }
  }
  __device__ void signal_many(std::uint64_t at, std::uint64_t value) const {
    fence();
    for (int i = 1; i <= size; ++i) relaxed_signal((me + i) % size, at, value);
  }
  __device__ void relaxed_signal(int peer, std::uint64_t at, std::uint64_t value) const {
    gpu::Word(*word(peer, at)).store(value, cuda::memory_order_relaxed);
  }

  // Where all is addressable kernels have no use for these; they complete the contract.
  __device__ void put(gpu::Warp warp, int peer, std::uint64_t offset, const void* source,
                      std::size_t bytes) const {
    gpu::copy_bytes(warp, bases[peer] + offset, static_cast<const std::byte*>(source), bytes);
  }
  __device__ void put_signal(gpu::Warp warp, int peer, std::uint64_t offset, const void* source,
                             std::size_t bytes, std::uint64_t at, std::uint64_t value, SignalOp op) const {
    put(warp, peer, offset, source, bytes);
    warp.sync();
    if (warp.thread() == 0) signal(peer, at, value, op);
  }
  __device__ void drain(gpu::Warp warp) const { warp.sync(); }

  __device__ Seen wait_until(const Wait& wait) const {
    const gpu::Word awaited(*word(me, wait.word));
    std::uint64_t seen = awaited.load(cuda::memory_order_acquire);
    if (reached(seen, wait.needed, wait.mask)) return {seen, Outcome::reached};
    return spin(wait, awaited);
  }

 private:
  static constexpr std::uint64_t kLookEvery = 20'000;  // ns
  // A rank that has closed its engine may have kernels under way that still signal.
  static constexpr std::uint64_t kAfterClosing = 500'000'000;  // ns

  // Whether a word says that its rank takes the other way. A rank that takes the direct way as well may have
  // written its rows when its counts, which other blocks publish, are not here.
  __device__ static bool contradicts(std::uint64_t& word, const Wait& wait) {
    const std::uint64_t seen = gpu::Word(word).load(cuda::memory_order_acquire);
    return reached(seen, wait.needed, wait.mask) && way_of(seen) != WireWay::direct;
  }

  __device__ bool left(int peer, std::uint64_t waited) const {
    if (watch.farewells == nullptr) return false;
    const Leaving why = leaving_of(const_cast<const volatile std::uint64_t*>(watch.farewells)[peer]);
    return why != Leaving::not_yet && (why != Leaving::closed || waited > kAfterClosing);
  }

  __device__ __noinline__ Seen spin(const Wait& wait, const gpu::Word& awaited) const {
    const std::uint64_t begin = gpu::ptx::clock_ns();
    std::uint64_t next_look = begin + kLookEvery, seen = 0;
    while (true) {
      for (int i = 0; i < 32; ++i) {
        seen = awaited.load(cuda::memory_order_acquire);
        if (reached(seen, wait.needed, wait.mask)) return {seen, Outcome::reached};
      }
      const std::uint64_t now = gpu::ptx::clock_ns();
      if (now < next_look) continue;
      next_look = now + kLookEvery;
      Outcome end = Outcome::reached;
      if (watch.aborted != nullptr && *const_cast<const volatile std::uint32_t*>(watch.aborted) != 0) {
        end = Outcome::aborted;
      } else if (wait.watch != 0 && contradicts(*word(me, wait.watch), wait)) {
        end = Outcome::contradicted;
      } else if (left(wait.peer, now - begin)) {
        end = Outcome::peer_left;
      } else if (now - begin > bound_ns) {
        end = Outcome::timed_out;
      } else {
        continue;
      }
      // The word may have come meanwhile, and what came counts.
      gpu::system_fence();
      seen = awaited.load(cuda::memory_order_acquire);
      return {seen, reached(seen, wait.needed, wait.mask) ? Outcome::reached : end};
    }
  }
};

static_assert(DeviceTransport<PeerHandle>);

// `timeout` in seconds. Kernels take it by value, as an argument of their kernel.
inline PeerHandle peer_handle(const std::vector<std::byte*>& bases, int rank, const HostWatch& watch,
                              double timeout, bool one_card = false) {
  PeerHandle handle{};
  handle.one_card = one_card;
  for (std::size_t peer = 0; peer < bases.size(); ++peer) handle.bases[peer] = bases[peer];
  handle.me = rank;
  handle.size = static_cast<int>(bases.size());
  handle.watch = watch;
  handle.bound_ns = timeout < 9e9 ? static_cast<std::uint64_t>(timeout * 1e9) : ~std::uint64_t{0};
  return handle;
}

}  // namespace moelane
