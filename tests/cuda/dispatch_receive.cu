#include "gpu/dispatch_receive.cuh"
#include "half_far.cuh"

namespace moelane::gpu {

template void launch_dispatch_receive(const ReceiveArgs<cuda_check::HalfFar>&, const Launch&);

}  // namespace moelane::gpu
