#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "moelane/world.hpp"

// What the program and the tests need of CUDA, without its headers: they are the same with and without a GPU.
// Built without CUDA, there are no cards, and everything else throws Error(transport).
namespace moelane::gpu {

struct Card {
  std::string name;
  int multiprocessors = 0;  // that this process may use; under MPS its share
  int major = 0, minor = 0;
  std::size_t memory = 0, free = 0;  // bytes
  std::string bus;                   // PCI address
};

bool compiled();       // this build has GPU code
int cards();           // that this process may use; 0 also without a driver
std::string reason();  // why cards() is 0: a sentence without its full stop
Card card(int device);
bool peer_access(int from, int to);
int driver_version(), runtime_version();  // 13000 is 13.0; 0: none

void select(int device);  // the calling thread's card from now on
void synchronize();       // the card has nothing more to do
std::uint64_t now_ns();   // %globaltimer of the card, which TraceEvent's times are in

// A stream that does not wait for the default stream.
class OwnStream {
 public:
  OwnStream();
  ~OwnStream();
  OwnStream(OwnStream&& other) noexcept;
  OwnStream& operator=(OwnStream&& other) noexcept;
  operator Stream() const { return stream_; }
  void synchronize() const;

 private:
  Stream stream_;
};

// What `calls` put on the stream, to be put there again and again.
class Graph {
 public:
  Graph() = default;
  static Graph capture(Stream stream, const std::function<void()>& calls);
  void launch(Stream stream) const;  // returns at once

 private:
  std::shared_ptr<void> executable_;
};

// Two moments of a stream and the time between them.
class Stopwatch {
 public:
  Stopwatch();
  void start(Stream stream);
  void stop(Stream stream);
  double us() const;  // waits for the second moment

 private:
  std::shared_ptr<void> first_, second_;
};

// Memory of the current card, freed with the last copy.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t bytes);
  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<std::byte> data_;
  std::size_t bytes_ = 0;
};

// Between host and card, in the stream's order, finished when they return.
void upload(void* card, const void* host, std::size_t bytes, Stream stream);
void download(void* host, const void* card, std::size_t bytes, Stream stream);

// Moves rows as the floors of docs/performance.md count them: row i of `from` is read once and written to the
// `copies` rows to[i * copies ...]; `rows` many, `bytes` each (a multiple of 16), by `multiprocessors`.
void copy_rows(const void* const* from, void* const* to, std::int64_t rows, int copies, std::int64_t bytes,
               int multiprocessors, Stream stream);
// As combine's floor: reads `copies` rows from[i * copies ...] and writes one row to[i].
void gather_rows(const void* const* from, void* const* to, std::int64_t rows, int copies, std::int64_t bytes,
                 int multiprocessors, Stream stream);

}  // namespace moelane::gpu
