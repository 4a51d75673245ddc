#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>

#include "conformance/peer_member.hpp"
#include "cuda/check.hpp"
#include "transport/peer/handle.cuh"

namespace moelane::conformance {
namespace {

static_assert(DeviceTransport<PeerHandle>);
static_assert(PeerCalls::kStrong == PeerHandle::kStrong);

// By one thread or by a warp.
__global__ void put_signal_kernel(PeerHandle net, int peer, std::uint64_t offset, const void* source,
                                  std::size_t bytes, std::uint64_t word, std::uint64_t value, SignalOp op) {
  if (blockDim.x == 1) {
    net.put_signal(peer, offset, source, bytes, word, value, op);
  } else {
    net.put_signal(gpu::Warp{}, peer, offset, source, bytes, word, value, op);
    net.drain(gpu::Warp{});
  }
}
__global__ void signal_kernel(PeerHandle net, int peer, std::uint64_t word, std::uint64_t value,
                              SignalOp op) {
  net.signal(peer, word, value, op);
}
__global__ void signal_many_kernel(PeerHandle net, std::uint64_t word, std::uint64_t value) {
  net.signal_many(word, value);
}
__global__ void wait_kernel(PeerHandle net, Wait wait, Seen* seen) { *seen = net.wait_until(wait); }
__global__ void store_kernel(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
}

}  // namespace

std::shared_ptr<void> shared_memory(std::size_t bytes) {
  void* memory = nullptr;
  gpu::check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "allocate memory that a card can reach");
  std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{0});
  return {memory, [](void* given) { cudaFreeHost(given); }};
}

struct PeerCalls::Device {
  // What a kernel and the host share.
  struct Shared {
    std::uint32_t aborted;
    Seen seen;
  };

  Device(const detail::Heaps& heaps, int rank, const std::uint64_t* farewells)
      : shared(std::static_pointer_cast<Shared>(shared_memory(sizeof(Shared)))),
        handle(peer_handle(heaps.bases, rank, {farewells, &shared->aborted}, 30)) {
    gpu::check(cudaGetDevice(&card), "find the current card");
    gpu::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
    void* made = nullptr;
    gpu::check(cudaMalloc(&made, Arena::kData), "allocate");
    staging = static_cast<std::byte*>(made);
  }
  ~Device() {
    cudaFree(staging);
    cudaStreamDestroy(stream);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  template <class... Args, class... Given>
  void run(void (*kernel)(Args...), const Given&... given) const {
    run_with(1, kernel, given...);
  }
  template <class... Args, class... Given>
  void run_with(unsigned threads, void (*kernel)(Args...), const Given&... given) const {
    gpu::check(cudaSetDevice(card), "select a card");  // any thread may come
    kernel<<<1, threads, 0, stream>>>(given...);
    gpu::check(cudaGetLastError(), "start a kernel");
    gpu::check(cudaStreamSynchronize(stream), "finish a kernel");
  }
  // The stream is emptied first: a copy may hold what other threads need to start kernels.
  void copy(void* to, const void* from, std::size_t bytes) const {
    gpu::check(cudaStreamSynchronize(stream), "finish a stream");
    if (bytes > 0) gpu::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copy");
    gpu::check(cudaStreamSynchronize(stream), "finish a copy");
  }

  std::shared_ptr<Shared> shared;
  PeerHandle handle;
  int card = 0;
  cudaStream_t stream = nullptr;
  std::byte* staging = nullptr;  // kernels take from here what the host puts
  std::atomic<unsigned> puts{0};
};

PeerCalls::PeerCalls(const detail::Heaps& heaps, int rank, const std::uint64_t* farewells)
    : device_(std::make_shared<Device>(heaps, rank, farewells)) {}

void PeerCalls::bound(double seconds) {
  const PeerHandle& h = device_->handle;
  device_->handle = peer_handle({h.bases, h.bases + h.size}, h.me, h.watch, seconds);
}
void PeerCalls::abort() { std::atomic_ref(device_->shared->aborted).store(1); }

int PeerCalls::rank() const { return device_->handle.me; }
int PeerCalls::ranks() const { return device_->handle.size; }
std::byte* PeerCalls::peer_pointer(int peer) const { return device_->handle.bases[peer]; }

void PeerCalls::put_signal(int peer, std::uint64_t offset, const void* source, std::size_t bytes,
                           std::uint64_t word, std::uint64_t value, SignalOp op) const {
  // As far from a boundary as the source is.
  std::byte* const from = device_->staging + reinterpret_cast<std::uintptr_t>(source) % 64;
  device_->copy(from, source, bytes);
  // Both kinds of puts, each with every length in the course of a suite.
  const unsigned threads = ++device_->puts % 2 == 0 ? 1 : gpu::Warp::kThreads;
  device_->run_with(threads, put_signal_kernel, device_->handle, peer, offset, from, bytes, word, value, op);
}
void PeerCalls::signal(int peer, std::uint64_t word, std::uint64_t value, SignalOp op) const {
  device_->run(signal_kernel, device_->handle, peer, word, value, op);
}
void PeerCalls::signal_many(std::uint64_t word, std::uint64_t value) const {
  device_->run(signal_many_kernel, device_->handle, word, value);
}
Seen PeerCalls::wait_until(const Wait& wait) const {
  device_->run(wait_kernel, device_->handle, wait, &device_->shared->seen);
  return device_->shared->seen;
}

void PeerCalls::store(std::byte* there, const void* from, std::size_t bytes) const {
  device_->copy(device_->staging, from, bytes);
  device_->run(store_kernel, there, device_->staging, bytes);
}
void PeerCalls::write(std::byte* to, const void* from, std::size_t bytes) const {
  device_->copy(to, from, bytes);
}
void PeerCalls::read(const std::byte* from, void* to, std::size_t bytes) const {
  device_->copy(to, from, bytes);
}

// All that is allocated is there before any rank waits in a kernel: allocating may wait for kernels.
PeerMember::PeerMember(World world)
    : world_(std::move(world)),
      heaps_(world_.impl().map_heaps(0, Arena(world_.size()).bytes())),
      farewells_(shared_memory(static_cast<std::size_t>(world_.size()) * sizeof(std::uint64_t))),
      farewells_of_all_(static_cast<std::size_t>(world_.size())),
      lanes_{PeerCalls(heaps_, world_.rank(), static_cast<const std::uint64_t*>(farewells_.get())),
             PeerCalls(heaps_, world_.rank(), static_cast<const std::uint64_t*>(farewells_.get()))} {
  auto* const mine = static_cast<std::uint64_t*>(farewells_.get());
  world_.all_gather(&mine, sizeof mine, farewells_of_all_.data());
  world_.barrier();
}

}  // namespace moelane::conformance
