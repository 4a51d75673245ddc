#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "moelane/world.hpp"
#include "transport/memory/peers.hpp"

namespace moelane::detail {

// The heaps of all ranks as this rank addresses them: `bytes` zeroed bytes each, unmapped with the object.
// The memory itself lives until the last rank has let go of it.
struct Heaps {
  std::vector<std::byte*> bases;  // [ranks], 4096-byte aligned; null: on another machine
  std::size_t bytes = 0;          // of each
  std::shared_ptr<void> owner;    // whatever keeps them mapped
  std::shared_ptr<Far> far;       // what carries puts to where no heap is mapped; null: all are
};

// The host side of a transport: membership, memory, and slow exchanges between ranks.
class WorldImpl {
 public:
  virtual ~WorldImpl() = default;
  virtual const std::string& transport() const = 0;
  int rank() const { return rank_; }
  int size() const { return size_; }
  double timeout() const { return timeout_; }
  // Spins and yields that suit this machine's cores and those of the world's ranks that share them.
  void tune(Waiter& waiter) const;
  virtual int ranks_here() const { return size_; }  // on this machine

  // Collective. The first `committed` bytes of this rank's heap are reserved at once, so that running out of
  // memory is an error here and not a signal later; the rest is reserved as it is touched.
  virtual Heaps map_heaps(std::size_t committed, std::size_t bytes) = 0;

  virtual void all_gather(const void* mine, std::size_t bytes, void* all) = 0;

  void barrier();

  // Whether every rank addresses every heap.
  virtual bool all_near() const { return true; }
  // An engine has failed here: peers may be gone, so the world's end waits for nobody.
  virtual void note_failure() {}

  // Whether the heaps lie on GPUs; then put a barrier of all ranks on a stream.
  virtual bool on_gpu() const { return false; }
  virtual void barrier(Stream);

 protected:
  WorldImpl(int rank, int size, double timeout) : rank_(rank), size_(size), timeout_(timeout) {}

 private:
  int rank_, size_;
  double timeout_;
};

// Where all heaps are mapped, exchanges go through a small heap of their own by the transport's own
// operations.
class MemoryWorld : public WorldImpl {
 public:
  void all_gather(const void* mine, std::size_t bytes, void* all) final;

 protected:
  using WorldImpl::WorldImpl;

 private:
  void gather_piece(const std::byte* mine, std::size_t bytes, std::byte* all, std::size_t stride);

  std::unique_ptr<Heaps> board_;
  std::uint64_t round_ = 0;
};

}  // namespace moelane::detail
