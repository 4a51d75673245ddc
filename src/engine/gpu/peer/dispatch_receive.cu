#include "gpu/dispatch_receive.cuh"
#include "transport/peer/handle.cuh"

namespace moelane::gpu {

template void launch_dispatch_receive(const ReceiveArgs<PeerHandle>&, const Launch&);

}  // namespace moelane::gpu
