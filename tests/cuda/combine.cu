#include "gpu/combine.cuh"
#include "half_far.cuh"

namespace moelane::gpu {

template void launch_combine(const CombineArgs<cuda_check::HalfFar>&, const Launch&);

}  // namespace moelane::gpu
