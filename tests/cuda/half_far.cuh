#pragma once

#include "transport/peer/handle.cuh"

// A transport that plays a network on one card: of the peers' heaps, which are all there, kernels see only
// some. To the others it copies, and its signals promise no more than weak ones.
namespace moelane::cuda_check {

struct HalfFar {
  static constexpr bool kStrong = false;
  static constexpr Reach kReach = Reach::some;
  static constexpr int kMaxRanks = PeerHandle::kMaxRanks;

  PeerHandle peers;
  std::uint64_t far;  // a bit for each rank, the own not among them

  __device__ int rank() const { return peers.rank(); }
  __device__ int ranks() const { return peers.ranks(); }
  __device__ std::byte* peer_pointer(int peer) const {
    return (far >> peer & 1) != 0 ? nullptr : peers.peer_pointer(peer);
  }
  __device__ void fence() const { peers.fence(); }
  __device__ void relaxed_signal(int peer, std::uint64_t at, std::uint64_t value) const {
    peers.relaxed_signal(peer, at, value);
  }
  __device__ void signal(int peer, std::uint64_t at, std::uint64_t value, SignalOp op) const {
    peers.signal(peer, at, value, op);
  }
  __device__ void signal_many(std::uint64_t at, std::uint64_t value) const { peers.signal_many(at, value); }
  __device__ void put_signal(int peer, std::uint64_t offset, const void* source, std::size_t bytes,
                             std::uint64_t at, std::uint64_t value, SignalOp op) const {
    peers.put_signal(peer, offset, source, bytes, at, value, op);
  }
  __device__ void put(gpu::Warp warp, int peer, std::uint64_t offset, const void* source,
                      std::size_t bytes) const {
    peers.put(warp, peer, offset, source, bytes);
  }
  __device__ void put_signal(gpu::Warp warp, int peer, std::uint64_t offset, const void* source,
                             std::size_t bytes, std::uint64_t at, std::uint64_t value, SignalOp op) const {
    peers.put_signal(warp, peer, offset, source, bytes, at, value, op);
  }
  __device__ void drain(gpu::Warp warp) const { peers.drain(warp); }
  __device__ Seen wait_until(const Wait& wait) const { return peers.wait_until(wait); }
};

static_assert(DeviceTransport<HalfFar>);

}  // namespace moelane::cuda_check
