#include "cuda/device.hpp"

#include "moelane/error.hpp"

// A build without CUDA: no cards, and everything that needs one is refused.
namespace moelane::gpu {
namespace {

[[noreturn]] void refuse() { throw Error(ErrorKind::transport, reason()); }

}  // namespace

bool compiled() { return false; }
int cards() { return 0; }
std::string reason() { return "this moelane was built without CUDA; configure it with -DMOELANE_CUDA=ON"; }
Card card(int) { refuse(); }
bool peer_access(int, int) { return false; }
int driver_version() { return 0; }
int runtime_version() { return 0; }
void select(int) { refuse(); }
void synchronize() { refuse(); }
std::uint64_t now_ns() { refuse(); }

OwnStream::OwnStream() { refuse(); }
OwnStream::~OwnStream() = default;
OwnStream::OwnStream(OwnStream&& other) noexcept = default;
OwnStream& OwnStream::operator=(OwnStream&& other) noexcept = default;
void OwnStream::synchronize() const { refuse(); }

Graph Graph::capture(Stream, const std::function<void()>&) { refuse(); }
void Graph::launch(Stream) const { refuse(); }

Stopwatch::Stopwatch() { refuse(); }
void Stopwatch::start(Stream) { refuse(); }
void Stopwatch::stop(Stream) { refuse(); }
double Stopwatch::us() const { refuse(); }

Memory::Memory(std::size_t bytes) : bytes_(bytes) { refuse(); }

void upload(void*, const void*, std::size_t, Stream) { refuse(); }
void download(void*, const void*, std::size_t, Stream) { refuse(); }
void copy_rows(const void* const*, void* const*, std::int64_t, int, std::int64_t, int, Stream) { refuse(); }
void gather_rows(const void* const*, void* const*, std::int64_t, int, std::int64_t, int, Stream) { refuse(); }

}  // namespace moelane::gpu
