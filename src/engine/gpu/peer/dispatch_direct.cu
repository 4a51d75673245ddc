#include "gpu/dispatch_direct.cuh"
#include "transport/peer/handle.cuh"

namespace moelane::gpu {

template void launch_dispatch_direct(const DirectArgs<PeerHandle>&, const Launch&);

}  // namespace moelane::gpu
