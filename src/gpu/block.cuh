#pragma once

#include <cstdint>

#include "cuda/ptx.cuh"
#include "cuda/words.cuh"
#include "gpu/context.cuh"

// What every kernel of a lane has in common: how it begins, waits, ends, and says what it found wrong.
namespace moelane::gpu {

inline constexpr int kThreads = 896;  // of a block: as many as have the registers they need

// By every thread of the block: whether it is so for one of them.
__device__ inline bool any_in_block(bool here) { return __syncthreads_or(here ? 1 : 0) != 0; }

// One block's view of its call.
template <DeviceTransport T>
class Block {
 public:
  __device__ explicit Block(const CallContext<T>& given) : context(given), epoch(given.lane.state().epoch) {
    if (context.stamps != nullptr && threadIdx.x == 0) {
      stamp().begin = ptx::clock_ns();
      stamp().wait_begin = stamp().wait_end = stamp().end = stamp().bytes = 0;
    }
  }

  // The step that the call belongs to.
  __device__ std::uint64_t step() const {
    const bool dispatches = context.call == CallKind::dispatch_send ||
                            context.call == CallKind::dispatch_recv || context.call == CallKind::dispatch;
    return epoch + (dispatches ? 1 : 0);
  }
  __device__ bool dead() const { return *const_cast<const volatile std::uint32_t*>(context.dead) != 0; }

  // By one thread. The first report of a severity in a call is passed on to the host, unless that has not
  // read the one before.
  __device__ __noinline__ void post(const Report& report) const {
    const Severity severity = report.failed() ? Severity::fatal : Severity::mild;
    const int s = static_cast<int>(severity);
    const std::uint64_t tag = step() * kCallKinds + static_cast<std::uint64_t>(context.call) + 1;
    auto* const claimed = reinterpret_cast<unsigned long long*>(&context.shared_state->claimed[s]);
    if (atomicExch(claimed, tag) == tag) return;
    if (severity == Severity::fatal) *const_cast<volatile std::uint32_t*>(context.dead) = 1;
    volatile ReportSlot& slot = context.report_slots[s];
    if (slot.filled != 0) return;
    const_cast<ReportSlot&>(slot).call = context.call;
    const_cast<ReportSlot&>(slot).step = step();
    const_cast<ReportSlot&>(slot).report = report;
    system_fence();
    slot.filled = 1;
  }

  __device__ void wait_begins() const {
    if (context.stamps != nullptr && threadIdx.x == 0) stamp().wait_begin = ptx::clock_ns();
  }
  __device__ void wait_ends() const {
    if (context.stamps != nullptr && threadIdx.x == 0) stamp().wait_end = ptx::clock_ns();
  }
  // `bytes` of this thread's; all threads.
  __device__ void end(std::uint64_t bytes) const {
    if (context.stamps == nullptr) return;
    if (bytes != 0) atomicAdd(reinterpret_cast<unsigned long long*>(&stamp().bytes), bytes);
    if (threadIdx.x == 0) {
      stamp().end = ptx::clock_ns();
      stamp().step = step();
    }
  }

  // Whether this is the last block of the call to come here; it then knows all that the others have written,
  // and so do peers who see what its thread 0 stores next. Of a block that is not, no thread may touch what
  // peers see any more.
  __device__ bool last() const {
    return last_and([] {});
  }
  // And raises a word at every rank if so. One fence serves all; the stores are on their way together.
  __device__ bool last_and_signal(std::uint64_t at, std::uint64_t word) const {
    return last_and([&] { signal_all(at, word); });
  }

  // All threads: raises the block's word of those who write rows, with a 1 in the payload if something is
  // `bad` in one thread; returns that. All that the block has written is known to who sees the word.
  __device__ bool signal_written(std::uint64_t word, bool bad) const {
    bad = any_in_block(bad);
    if (static_cast<int>(threadIdx.x) < context.lane.shape().ranks) {
      context.lane.transport.fence();
      const int unit = static_cast<int>(blockIdx.x);
      signal_one(static_cast<int>(threadIdx.x), context.lane.at.written(context.lane.rank(), unit),
                 unit > 0 && bad ? word | 1 : word);
    }
    return bad;
  }

  // By one thread that has fenced. Every rank begins with another peer.
  __device__ void signal_all(std::uint64_t at, std::uint64_t word) const {
    for (int i = 0; i < context.lane.shape().ranks; ++i) signal_one(i, at, word);
  }
  __device__ void signal_one(int i, std::uint64_t at, std::uint64_t word) const {
    const int ranks = context.lane.shape().ranks, peer = context.lane.rank() + 1 + i;
    context.lane.transport.relaxed_signal(peer < ranks ? peer : peer - ranks, at, word);
  }

  // One thread, one source. False when the word does not come; this has been posted.
  __device__ __noinline__ bool wait_for(const Wait& wait, Phase phase, std::uint64_t& word) const {
    Report report;
    if (await(context.lane, wait, phase, word, report)) return true;
    post(report);
    return false;
  }
  __device__ __noinline__ bool refuse_peer(Fault fault, Phase phase, int peer, std::uint64_t seen,
                                           std::uint64_t needed) const {
    Report report;
    refuse(report, fault, phase, peer, seen, needed);
    post(report);
    return false;
  }

  const CallContext<T>& context;
  const std::uint64_t epoch;  // steps whose dispatch has been received

 private:
  template <class Then>
  __device__ bool last_and(const Then& then) const {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
      context.lane.transport.fence();
      is_last =
          gridDim.x == 1 || atomicInc(&context.shared_state->blocks_done, gridDim.x - 1) == gridDim.x - 1;
      if (is_last) {
        if (gridDim.x > 1) context.lane.transport.fence();
        then();
      }
    }
    __syncthreads();
    return is_last;
  }
  __device__ Stamp& stamp() const { return context.stamps[blockIdx.x]; }
};

// Arguments of a kernel come from memory when they are first used, a line at a time. Reads them all at once,
// so that the lines are on their way together.
template <class Args>
__device__ void fetch_arguments(const Args& args) {
  constexpr int kLine = 64, kLines = sizeof(Args) / kLine;
  const int line = static_cast<int>(threadIdx.x / 32);
  for (int i = line; i < kLines; i += static_cast<int>(blockDim.x / 32)) {
    ptx::touch(reinterpret_cast<const std::uint32_t*>(&args) + i * (kLine / 4));
  }
}

}  // namespace moelane::gpu
