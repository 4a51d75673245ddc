#include "engine/gpu/backend.cuh"
#include "engine/gpu/peer/ranks.hpp"

namespace moelane {

std::unique_ptr<Backend> make_gpu_backend(detail::WorldImpl& world, const Config& config,
                                          const PlacementView& placement) {
  return std::make_unique<gpu::GpuBackend<gpu::PeerRanks>>(world, config, placement);
}

}  // namespace moelane
