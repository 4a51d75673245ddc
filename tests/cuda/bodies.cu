// Compiles the protocol's bodies for a GPU: the same templates that CPU ranks run, over a team of one block
// and a transport that writes to peers' memory. Nothing here runs; it shows that no body needs the CPU.
#include <cstddef>
#include <cstdint>
#include <cuda/atomic>

#include "protocol/combine_direct.hpp"
#include "protocol/combine_put.hpp"
#include "protocol/dispatch_direct.hpp"
#include "protocol/dispatch_put.hpp"

namespace moelane::cuda_check {

struct BlockTeam {
  __device__ int unit() const { return 0; }
  __device__ int units() const { return 1; }
  __device__ bool leader() const { return threadIdx.x == 0; }
  __device__ void barrier() const { __syncthreads(); }
  __device__ bool last() const { return true; }
  __device__ void copy(void* to, const void* from, std::size_t bytes) const {
    for (std::size_t i = threadIdx.x; i < bytes; i += blockDim.x) {
      static_cast<std::byte*>(to)[i] = static_cast<const std::byte*>(from)[i];
    }
  }
  __device__ void copy_many(void* const* to, int n, const void* from, std::size_t bytes) const {
    for (int i = 0; i < n; ++i) copy(to[i], from, bytes);
  }
  __device__ void prefetch(const void*) const {}
  __device__ void prefetch_write(const void*, std::int64_t) const {}
  __device__ void sum(const void* const* rows, const float* weights, int n, DType, std::int64_t hidden,
                      void* out, DType, bool accumulate) const {
    for (std::int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      float* to = static_cast<float*>(out) + j;
      float sum = 0;
      for (int i = 0; i < n; ++i) sum = fmaf(weights[i], static_cast<const float*>(rows[i])[j], sum);
      *to = accumulate ? sum + *to : sum;
    }
  }
  __device__ void publish() const { __threadfence_system(); }
};

struct PeerMemory {
  static constexpr bool kStrong = true;
  std::byte* const* heaps;
  int me, all;

  __device__ int rank() const { return me; }
  __device__ int ranks() const { return all; }
  __device__ std::byte* peer_pointer(int peer) const { return heaps[peer]; }
  __device__ void put_signal(int peer, std::uint64_t offset, const void* source, std::size_t bytes,
                             std::uint64_t word, std::uint64_t value, SignalOp op) const {
    BlockTeam{}.copy(heaps[peer] + offset, source, bytes);
    __syncthreads();
    signal(peer, word, value, op);
  }
  __device__ void signal(int peer, std::uint64_t word, std::uint64_t value, SignalOp op) const {
    cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system> ref(
        *reinterpret_cast<std::uint64_t*>(heaps[peer] + word));
    if (op == SignalOp::set) {
      ref.store(value, cuda::memory_order_release);
    } else {
      ref.fetch_add(value, cuda::memory_order_release);
    }
  }
  __device__ void signal_many(std::uint64_t word, std::uint64_t value) const {
    for (int peer = 0; peer < all; ++peer) signal(peer, word, value, SignalOp::set);
  }
  __device__ Seen wait_until(const Wait& wait) const {
    cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system> ref(
        *reinterpret_cast<std::uint64_t*>(heaps[me] + wait.word));
    for (int i = 0; i < 1 << 20; ++i) {
      const std::uint64_t word = ref.load(cuda::memory_order_acquire);
      if (reached(word, wait.needed, wait.mask)) return {word, Outcome::reached};
    }
    return {ref.load(cuda::memory_order_relaxed), Outcome::timed_out};
  }
};

__global__ void put_step(Lane<PeerMemory> lane, Input in, Output out, Answers answers, CombineOutput combined,
                         Report* report) {
  const BlockTeam team;
  keep_routing(team, lane, in, *report);
  dispatch_put_send(team, lane, in, *report);
  dispatch_put_recv(team, lane, out, *report);
  combine_put_send(team, lane, answers, 0, *report);
  combine_put_recv(team, lane, combined, 0, *report);
}

__global__ void direct_step(Lane<PeerMemory> lane, Input in, Output out, ExpertRows rows,
                            CombineOutput combined, Report* report) {
  const BlockTeam team;
  keep_routing(team, lane, in, *report);
  dispatch_direct(team, lane, in, out, OutputPrint{0}, *report);
  combine_direct(team, lane, rows, combined, 0, *report);
}

}  // namespace moelane::cuda_check
