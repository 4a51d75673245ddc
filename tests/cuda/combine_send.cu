#include "gpu/combine_send.cuh"
#include "half_far.cuh"

namespace moelane::gpu {

template void launch_combine_send(const AnswerArgs<cuda_check::HalfFar>&, const Launch&);

}  // namespace moelane::gpu
