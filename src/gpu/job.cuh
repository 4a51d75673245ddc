#pragma once

#include <cstdint>

#include "cuda/ptx.cuh"
#include "protocol/lane.hpp"
#include "transport/peer/handle.cuh"

// What every kernel of a lane has in common: how it begins, waits, ends, and says what it found wrong.
namespace moelane::gpu {

inline constexpr int kThreads = 896;  // of a block: as many as have the registers they need

enum class Call : std::int32_t {
  dispatch_send,
  dispatch_recv,
  combine_send,
  combine_recv,
  dispatch,
  combine
};
inline constexpr int kCalls = 6;

// A report on its way to the host, in host memory. The kernel writes it while `news` is 0; the host reads it
// and clears `news`.
struct Notice {
  std::uint32_t news;
  Call call;
  std::uint64_t step;
  Report report;
};
// Of each lane: what makes a step invalid, and what ends the engine.
enum class Grade : std::int32_t { mild, fatal };
inline constexpr int kGrades = 2;

// What the blocks of a lane's kernels share, in the card's memory.
struct Desk {
  std::uint32_t blocks_done;       // of the running kernel; wraps to 0
  std::uint64_t claimed[kGrades];  // the last call that has reported
  std::uint32_t first_bad;         // the first bad id of the running dispatch as token * topk + k, or kNone
  std::uint32_t first_dropped;     // direct: the first of the own rows that a peer had no room for, or kNone
};
inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

// When a block did what, in nanoseconds of the card's clock.
struct Stamp {
  std::uint64_t step, begin, wait_begin, wait_end, end, bytes;
};

// Divides non-negative numbers below 2^27 by topk, of at most 32: a multiplication where a division would
// take twenty instructions. Kernels that last microseconds wait for their instructions as for their data.
struct ByTopk {
  std::int32_t topk;
  std::uint32_t inverse;
  __host__ __device__ explicit ByTopk(std::int32_t k)
      : topk(k),
        inverse(static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + static_cast<std::uint64_t>(k) - 1) /
                                           static_cast<std::uint64_t>(k))) {}
  __device__ std::int32_t quotient(std::int32_t n) const {
    return topk == 1 ? n : static_cast<std::int32_t>(__umulhi(static_cast<std::uint32_t>(n), inverse));
  }
  __device__ std::int32_t remainder(std::int32_t n) const { return n - quotient(n) * topk; }
};

// Where an expert is, in one word: its rank and its number there.
__host__ __device__ constexpr std::uint32_t where_word(std::int32_t rank, std::int32_t local) {
  return static_cast<std::uint32_t>(rank) << 16 | static_cast<std::uint32_t>(local);
}
__device__ constexpr std::int32_t rank_of(std::uint32_t where) {
  return static_cast<std::int32_t>(where >> 16);
}
__device__ constexpr std::int32_t local_of(std::uint32_t where) {
  return static_cast<std::int32_t>(where & 0xFFFF);
}

struct Job {
  Lane<PeerHandle> lane;
  ByTopk by_topk;
  Call call;
  Desk* desk;
  Notice* notices;             // [kGrades]
  std::uint32_t* dead;         // of the engine: set when it cannot go on
  Stamp* stamps;               // [blocks], or null
  const std::uint32_t* where;  // [experts]: where_word()
  std::int32_t* scratch;       // [blocks][2][keys] where shared memory is too small, else null
};

// One block's view of its call.
class Block {
 public:
  __device__ explicit Block(const Job& given) : job(given), epoch(given.lane.state().epoch) {
    if (job.stamps != nullptr && threadIdx.x == 0) {
      stamp().begin = ptx::clock_ns();
      stamp().wait_begin = stamp().wait_end = stamp().end = stamp().bytes = 0;
    }
  }

  // The step that the call belongs to.
  __device__ std::uint64_t step() const {
    const bool dispatches =
        job.call == Call::dispatch_send || job.call == Call::dispatch_recv || job.call == Call::dispatch;
    return epoch + (dispatches ? 1 : 0);
  }
  __device__ bool dead() const { return *const_cast<const volatile std::uint32_t*>(job.dead) != 0; }

  // By one thread. The first report of a grade in a call is passed on, unless the host has not read the one
  // before.
  __device__ __noinline__ void tell(const Report& report) const {
    const Grade grade = report.failed() ? Grade::fatal : Grade::mild;
    const int g = static_cast<int>(grade);
    const std::uint64_t tag = step() * kCalls + static_cast<std::uint64_t>(job.call) + 1;
    auto* const claimed = reinterpret_cast<unsigned long long*>(&job.desk->claimed[g]);
    if (atomicExch(claimed, tag) == tag) return;
    if (grade == Grade::fatal) *const_cast<volatile std::uint32_t*>(job.dead) = 1;
    volatile Notice& notice = job.notices[g];
    if (notice.news != 0) return;
    const_cast<Notice&>(notice).call = job.call;
    const_cast<Notice&>(notice).step = step();
    const_cast<Notice&>(notice).report = report;
    system_fence();
    notice.news = 1;
  }

  // Every thread of the block: `failed` in one is failed in all.
  __device__ static bool fine(bool failed) { return __syncthreads_or(failed ? 1 : 0) == 0; }

  __device__ void wait_begins() const {
    if (job.stamps != nullptr && threadIdx.x == 0) stamp().wait_begin = ptx::clock_ns();
  }
  __device__ void wait_ends() const {
    if (job.stamps != nullptr && threadIdx.x == 0) stamp().wait_end = ptx::clock_ns();
  }
  // `bytes` of this thread's; all threads.
  __device__ void end(std::uint64_t bytes) const {
    if (job.stamps == nullptr) return;
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
    bad = __syncthreads_or(bad ? 1 : 0) != 0;
    if (static_cast<int>(threadIdx.x) < job.lane.shape().ranks) {
      job.lane.transport.fence();
      const int unit = static_cast<int>(blockIdx.x);
      signal_one(static_cast<int>(threadIdx.x), job.lane.at.written(job.lane.rank(), unit),
                 unit > 0 && bad ? word | 1 : word);
    }
    return bad;
  }

  // By one thread that has fenced. Every rank begins with another peer.
  __device__ void signal_all(std::uint64_t at, std::uint64_t word) const {
    for (int i = 0; i < job.lane.shape().ranks; ++i) signal_one(i, at, word);
  }
  __device__ void signal_one(int i, std::uint64_t at, std::uint64_t word) const {
    const int ranks = job.lane.shape().ranks, peer = job.lane.rank() + 1 + i;
    job.lane.transport.relaxed_signal(peer < ranks ? peer : peer - ranks, at, word);
  }

  // One thread, one source. False when the word does not come; this has been told.
  __device__ __noinline__ bool wait_for(const Wait& wait, Phase phase, std::uint64_t& word) const {
    Report report;
    if (await(job.lane, wait, phase, word, report)) return true;
    tell(report);
    return false;
  }
  __device__ __noinline__ bool refuse_peer(Fault fault, Phase phase, int peer, std::uint64_t seen,
                                           std::uint64_t needed) const {
    Report report;
    refuse(report, fault, phase, peer, seen, needed);
    tell(report);
    return false;
  }

  const Job& job;
  const std::uint64_t epoch;  // steps whose dispatch has been received

 private:
  template <class Then>
  __device__ bool last_and(const Then& then) const {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
      job.lane.transport.fence();
      is_last = gridDim.x == 1 || atomicInc(&job.desk->blocks_done, gridDim.x - 1) == gridDim.x - 1;
      if (is_last) {
        if (gridDim.x > 1) job.lane.transport.fence();
        then();
      }
    }
    __syncthreads();
    return is_last;
  }
  __device__ Stamp& stamp() const { return job.stamps[blockIdx.x]; }
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

// What of `n` block `block` of `blocks` does.
struct Range {
  std::int32_t begin, end;  // [begin, end)
  __device__ std::int32_t size() const { return end - begin; }
};
__device__ inline Range slice_of(std::int32_t n, std::uint32_t blocks, std::uint32_t block) {
  const std::uint32_t each = static_cast<std::uint32_t>(n) / blocks,
                      more = static_cast<std::uint32_t>(n) - each * blocks;
  const std::uint32_t begin = each * block + (block < more ? block : more);
  return {static_cast<std::int32_t>(begin), static_cast<std::int32_t>(begin + each + (block < more ? 1 : 0))};
}

}  // namespace moelane::gpu
