#include <cuda_runtime.h>

#include <utility>

#include "cuda/check.hpp"
#include "cuda/device.hpp"
#include "cuda/ptx.cuh"

namespace moelane::gpu {
namespace {

cudaStream_t raw(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }
cudaEvent_t event(const std::shared_ptr<void>& owner) { return static_cast<cudaEvent_t>(owner.get()); }

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "ask a card for an attribute");
  return value;
}

__global__ void read_clock(std::uint64_t* to) { *to = ptx::clock_ns(); }

std::shared_ptr<void> make_event() {
  cudaEvent_t made = nullptr;
  check(cudaEventCreate(&made), "make an event");
  return {made, [](void* e) { cudaEventDestroy(static_cast<cudaEvent_t>(e)); }};
}

// Within a capture the moment is one of the graph's, and comes anew with every launch.
void record(const std::shared_ptr<void>& owner, Stream stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(raw(stream), &capture), "ask a stream whether it is captured");
  const unsigned flags =
      capture == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
  check(cudaEventRecordWithFlags(event(owner), raw(stream), flags), "record an event");
}

// The stream is emptied first: a copy from pageable memory may hold what other threads need to start the
// kernels that this stream waits for.
void move(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, Stream stream,
          const char* doing) {
  check(cudaStreamSynchronize(raw(stream)), doing);
  if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, kind, raw(stream)), doing);
  check(cudaStreamSynchronize(raw(stream)), doing);
}

}  // namespace

bool compiled() { return true; }

int cards() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::string reason() {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (driver_version() == 0) return "there is no NVIDIA driver here";
  if (found == cudaErrorNoDevice || (found == cudaSuccess && count == 0)) {
    return "the NVIDIA driver shows no card to this process; CUDA_VISIBLE_DEVICES may hide them";
  }
  if (found == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver is for CUDA " + version(driver_version()) + ", this moelane for " +
           version(runtime_version());
  }
  return std::string("CUDA cannot be used: ") + cudaGetErrorString(found);
}

Card card(int device) {
  int before = 0;
  check(cudaGetDevice(&before), "find the current card");
  select(device);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "ask a card what it is");
  char bus[32] = {};
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "ask a card for its address");
  Card card;
  card.name = properties.name;
  card.multiprocessors = attribute(cudaDevAttrMultiProcessorCount, device);
  card.major = properties.major;
  card.minor = properties.minor;
  card.bus = bus;
  check(cudaMemGetInfo(&card.free, &card.memory), "ask a card for its free memory");
  select(before);
  return card;
}

bool peer_access(int from, int to) {
  int access = 1;
  if (from != to) check(cudaDeviceCanAccessPeer(&access, from, to), "ask for peer access");
  return access != 0;
}

int driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

int runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0;
}

void select(int device) { check(cudaSetDevice(device), "select a card"); }
void synchronize() { check(cudaDeviceSynchronize(), "finish the work of a card"); }

std::uint64_t now_ns() {
  const OwnStream stream;
  const Memory word(sizeof(std::uint64_t));
  read_clock<<<1, 1, 0, raw(stream)>>>(reinterpret_cast<std::uint64_t*>(word.data()));
  check(cudaGetLastError(), "read the clock of a card");
  std::uint64_t now = 0;
  download(&now, word.data(), sizeof now, stream);
  return now;
}

OwnStream::OwnStream() {
  cudaStream_t made = nullptr;
  check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "make a stream");
  stream_.handle = made;
}
OwnStream::~OwnStream() {
  if (stream_.handle != nullptr) cudaStreamDestroy(raw(stream_));
}
OwnStream::OwnStream(OwnStream&& other) noexcept : stream_(std::exchange(other.stream_, {})) {}
OwnStream& OwnStream::operator=(OwnStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}
void OwnStream::synchronize() const { check(cudaStreamSynchronize(raw(stream_)), "finish a stream"); }

Graph Graph::capture(Stream stream, const std::function<void()>& calls) {
  const auto end = [&] {
    cudaGraph_t captured = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(raw(stream), &captured);
    return std::pair{ended, std::shared_ptr<CUgraph_st>(captured, [](cudaGraph_t g) {
                       if (g != nullptr) cudaGraphDestroy(g);
                     })};
  };
  // Of this thread only: others go on allocating meanwhile.
  check(cudaStreamBeginCapture(raw(stream), cudaStreamCaptureModeThreadLocal), "capture a stream");
  try {
    calls();
  } catch (...) {
    end();
    cudaGetLastError();
    throw;
  }
  const auto [ended, graph] = end();
  check(ended, "end the capture of a stream");
  cudaGraphExec_t made = nullptr;
  check(cudaGraphInstantiate(&made, graph.get(), 0), "make a graph");
  Graph result;
  result.executable_ = {made, [](void* g) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(g)); }};
  check(cudaGraphUpload(made, raw(stream)), "put a graph on a card");
  return result;
}

void Graph::launch(Stream stream) const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_.get()), raw(stream)), "launch a graph");
}

Stopwatch::Stopwatch() : first_(make_event()), second_(make_event()) {}
void Stopwatch::start(Stream stream) { record(first_, stream); }
void Stopwatch::stop(Stream stream) { record(second_, stream); }
double Stopwatch::us() const {
  check(cudaEventSynchronize(event(second_)), "wait for an event");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, event(first_), event(second_)), "take the time between two events");
  return static_cast<double>(ms) * 1000;
}

Memory::Memory(std::size_t bytes) : bytes_(bytes) {
  void* made = nullptr;
  check(cudaMalloc(&made, bytes), ("allocate " + std::to_string(bytes) + " bytes on a card").c_str());
  data_ = {static_cast<std::byte*>(made), [](std::byte* memory) { cudaFree(memory); }};
}

void upload(void* card, const void* host, std::size_t bytes, Stream stream) {
  move(card, host, bytes, cudaMemcpyHostToDevice, stream, "copy to a card");
}

void download(void* host, const void* card, std::size_t bytes, Stream stream) {
  move(host, card, bytes, cudaMemcpyDeviceToHost, stream, "copy from a card");
}

}  // namespace moelane::gpu
