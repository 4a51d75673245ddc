#include "gpu/dispatch_send.cuh"
#include "half_far.cuh"

namespace moelane::gpu {

template void launch_dispatch_send(const SendArgs<cuda_check::HalfFar>&, const Launch&);

}  // namespace moelane::gpu
