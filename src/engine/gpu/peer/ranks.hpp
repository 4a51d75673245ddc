#pragma once

#include <cuda_runtime_api.h>

#include "cuda/check.hpp"
#include "engine/gpu/ranks.hpp"
#include "transport/peer/control.hpp"
#include "transport/peer/world.hpp"

namespace moelane::gpu {

// GpuRanks of transport peer.
class PeerRanks {
 public:
  using Handle = PeerHandle;

  PeerRanks(detail::WorldImpl& world, const Config& config)
      : world_(static_cast<peer::PeerWorld&>(world)),
        control_((check_config(config), check(cudaSetDevice(card()), "select a card"), world_.meeting())),
        heaps_(world.map_heaps(config.heap_bytes(world.size()), config.mapped_bytes(world.size()))),
        handle_(
            peer_handle(heaps_.bases, world.rank(), control_.watch(), config.timeout, world_.one_card())) {}

  int card() const { return world_.device(); }
  std::byte* heap() const { return heaps_.bases[static_cast<std::size_t>(world_.rank())]; }
  std::size_t heap_bytes() const { return heaps_.bytes; }
  Handle handle(int) const { return handle_; }

  void abort() { control_.abort(); }
  void say_farewell(int peer, Leaving why, int blamed) { control_.say_farewell(peer, why, blamed); }
  std::uint64_t farewell_of(int peer) const { return control_.farewell_of(peer); }

 private:
  static void check_config(const Config& config) {
    if (!config.force_puts) return;
    throw Error(ErrorKind::argument,
                "force_puts is true, allowed with transport peer is false: its puts are copies");
  }

  peer::PeerWorld& world_;
  peer::Control control_;
  detail::Heaps heaps_;
  PeerHandle handle_;
};

static_assert(GpuRanks<PeerRanks>);

}  // namespace moelane::gpu
