#include <sched.h>

#include <algorithm>
#include <cstring>

#include "core/signal.hpp"
#include "moelane/error.hpp"
#include "transport/world_impl.hpp"

namespace moelane::detail {
namespace {

// The board, one in each rank's heap: farewells (unused), a bell, a word for each rank, two pages for each
// rank. A rank writes page round % 2 of every peer; it comes back to a page two rounds later, and then
// everybody has announced the round between, after reading that page.
constexpr std::size_t kPage = 1024;
struct Board {
  explicit Board(int ranks_given) : ranks(static_cast<std::uint64_t>(ranks_given)) {}
  std::uint64_t bell() const { return control_bytes(static_cast<int>(ranks)); }
  std::uint64_t word(int source) const { return bell() + 64 + static_cast<std::uint64_t>(source) * 8; }
  std::uint64_t page(int source, std::uint64_t round) const {
    return word(static_cast<int>(ranks)) + (static_cast<std::uint64_t>(source) * 2 + round % 2) * kPage;
  }
  std::size_t bytes() const { return (page(static_cast<int>(ranks), 0) + 4095) / 4096 * 4096; }
  std::uint64_t ranks;
};

}  // namespace

void WorldImpl::tune(Waiter& waiter) const {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  waiter.spins = ranks_here() <= cores ? 2000 : 0;
  waiter.yield_ns = 100'000;
}

void MemoryWorld::all_gather(const void* mine, std::size_t bytes, void* all) {
  const auto* from = static_cast<const std::byte*>(mine);
  auto* to = static_cast<std::byte*>(all);
  std::size_t done = 0;
  do {
    const std::size_t piece = std::min(bytes - done, kPage);
    gather_piece(from + done, piece, to + done, bytes);
    done += piece;
  } while (done < bytes);
}

void MemoryWorld::gather_piece(const std::byte* mine, std::size_t bytes, std::byte* all, std::size_t stride) {
  const Board board(size());
  if (board_ == nullptr) board_ = std::make_unique<Heaps>(map_heaps(board.bytes(), board.bytes()));
  Waiter waiter;
  tune(waiter);
  waiter.deadline_ns = deadline_after(timeout());
  const MemoryPeers peers(board_->bases.data(), rank(), size(), board.bell(), true, &waiter);
  ++round_;
  for (int i = 1; i <= size(); ++i) {
    const int peer = (rank() + i) % size();
    peers.put_signal(peer, board.page(rank(), round_), mine, bytes, board.word(rank()), round_,
                     SignalOp::set);
  }
  for (int source = 0; source < size(); ++source) {
    const Seen seen = peers.wait_until({board.word(source), round_, kCounterMask, source});
    if (seen.outcome != Outcome::reached) {
      throw Error(ErrorKind::timeout, "rank " + std::to_string(rank()) + " waited " +
                                          std::to_string(timeout()) + " s for rank " +
                                          std::to_string(source) + " in exchange " + std::to_string(round_) +
                                          " of the world: saw " + std::to_string(seen.word) + ", needed " +
                                          std::to_string(round_));
    }
    std::memcpy(all + static_cast<std::size_t>(source) * stride,
                board_->bases[static_cast<std::size_t>(rank())] + board.page(source, round_), bytes);
  }
}

}  // namespace moelane::detail
