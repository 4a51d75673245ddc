#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/warp.cuh"
#include "transport/transport.hpp"

// What GPU kernels need of a transport beyond the contract of transport.hpp. Its handle is an argument of
// every kernel, by value; how large it is, and what it keeps elsewhere, is its own affair.
namespace moelane {

// Whose heaps kernels address. With `all` the code for other peers is not even compiled.
enum class Reach : std::uint8_t {
  all,   // every peer's: peer_pointer() is never null
  some,  // those whose peer_pointer() is not null, the own always; the others are far
};

template <class T>
concept DeviceTransport = Transport<T> && std::is_trivially_copyable_v<T> &&
    requires(const T& t, gpu::Warp warp, int peer, std::uint64_t offset, const void* source,
             std::size_t bytes, std::uint64_t value, SignalOp op) {
  { T::kReach } -> std::convertible_to<Reach>;
  // Most ranks of a world, at most the threads of a block. Blocks have tables of as many entries.
  { T::kMaxRanks } -> std::convertible_to<int>;
  // By a thread: what it has written, and what it knows of (over a barrier, say), comes before the signals
  // that it raises next, relaxed ones too.
  {t.fence()};
  // By a thread: sets a word. Orders nothing by itself, so that after one fence many may be on their way.
  {t.relaxed_signal(peer, offset, value)};
  // By a warp, all of it with the same arguments, to a far peer: a put, and a put with its signal
  // (Transport::put_signal). Warps put side by side and do not wait for each other. The source lies in the
  // own heap, is known to the warp, and stays as it is until drain() or until the peer has been heard to have
  // received it. A signal that a thread of the block raises after a barrier and fence() covers a put only
  // where the transport is strong.
  {t.put(warp, peer, offset, source, bytes)};
  {t.put_signal(warp, peer, offset, source, bytes, offset, value, op)};
  // By a warp: the sources of all that it has put may change when this returns. Waits for no peer's kernel.
  {t.drain(warp)};
};

}  // namespace moelane
