#include "gpu/combine_send.cuh"
#include "transport/peer/handle.cuh"

namespace moelane::gpu {

template void launch_combine_send(const AnswerArgs<PeerHandle>&, const Launch&);

}  // namespace moelane::gpu
