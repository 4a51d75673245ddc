#include "gpu/dispatch_send.cuh"
#include "transport/peer/handle.cuh"

namespace moelane::gpu {

template void launch_dispatch_send(const SendArgs<PeerHandle>&, const Launch&);

}  // namespace moelane::gpu
