#include "gpu/combine.cuh"
#include "transport/peer/handle.cuh"

namespace moelane::gpu {

template void launch_combine(const CombineArgs<PeerHandle>&, const Launch&);

}  // namespace moelane::gpu
