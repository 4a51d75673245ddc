#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "core/farewell.hpp"
#include "moelane/config.hpp"
#include "transport/device_transport.cuh"
#include "transport/world_impl.hpp"

namespace moelane::gpu {

// What GpuBackend has to know of a kind of world whose ranks are on GPUs: how its transport's handles are
// made, and how the ranks' hosts and waiting kernels hear of each other. One object for each engine, made by
// all ranks together; it holds the heaps.
template <class R>
concept GpuRanks = DeviceTransport<typename R::Handle> &&
    std::constructible_from<R, detail::WorldImpl&, const Config&> &&
    requires(R& ranks, const R& same, int number, Leaving why) {
  { same.card() } -> std::same_as<int>;         // the own
  { same.heap() } -> std::same_as<std::byte*>;  // the own, zeroed
  { same.heap_bytes() } -> std::same_as<std::size_t>;
  { same.handle(number) } -> std::same_as<typename R::Handle>;  // of a lane
  // From any thread: ends the own kernels' waits; leaves a farewell at a peer.
  {ranks.abort()};
  {ranks.say_farewell(number, why, number)};
  { same.farewell_of(number) } -> std::same_as<std::uint64_t>;
};

}  // namespace moelane::gpu
