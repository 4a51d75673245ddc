#include "cuda/device.hpp"
#include "engine/backend.hpp"
#include "moelane/error.hpp"

namespace moelane {

World World::peer(World, int) { throw Error(ErrorKind::transport, gpu::reason()); }

std::unique_ptr<Backend> make_gpu_backend(detail::WorldImpl&, const Config&, const PlacementView&) {
  throw Error(ErrorKind::transport, gpu::reason());
}

}  // namespace moelane
