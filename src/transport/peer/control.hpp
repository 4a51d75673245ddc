#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

#include "core/farewell.hpp"
#include "core/layout.hpp"
#include "cuda/check.hpp"
#include "transport/peer/handle.cuh"
#include "transport/world_impl.hpp"

namespace moelane::peer {

// What ranks' hosts tell waiting kernels: a page of farewells (as in a CPU rank's heap) and a word that ends
// the own waits. It is host memory of the meeting world, mapped into the card's addresses.
class Control {
 public:
  // Collective over the meeting world.
  explicit Control(detail::WorldImpl& meeting)
      : rank_(meeting.rank()), ranks_(meeting.size()), heaps_(meeting.map_heaps(bytes(), bytes())) {
    gpu::check(cudaHostRegister(own(), bytes(), cudaHostRegisterMapped | cudaHostRegisterPortable),
               "map host memory for a card");
    void* seen = nullptr;
    const cudaError_t found = cudaHostGetDevicePointer(&seen, own(), 0);
    if (found != cudaSuccess) cudaHostUnregister(own());
    gpu::check(found, "find host memory from a card");
    device_ = static_cast<std::byte*>(seen);
  }
  ~Control() { cudaHostUnregister(own()); }
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  HostWatch watch() const {
    return {reinterpret_cast<const std::uint64_t*>(device_),
            reinterpret_cast<const std::uint32_t*>(device_ + control_bytes(ranks_))};
  }
  void abort() { aborted().store(1); }
  void say_farewell(int peer, Leaving why, int blamed) {
    word(heaps_.bases[static_cast<std::size_t>(peer)], rank_).store(farewell_word(why, blamed));
  }
  std::uint64_t farewell_of(int peer) const { return word(own(), peer).load(); }

 private:
  std::size_t bytes() const { return control_bytes(ranks_) + 4096; }
  std::byte* own() const { return heaps_.bases[static_cast<std::size_t>(rank_)]; }
  static std::atomic_ref<std::uint64_t> word(std::byte* page, int source) {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(page + farewell(source)));
  }
  std::atomic_ref<std::uint32_t> aborted() const {
    return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(own() + control_bytes(ranks_)));
  }

  int rank_, ranks_;
  detail::Heaps heaps_;
  std::byte* device_ = nullptr;
};

}  // namespace moelane::peer
