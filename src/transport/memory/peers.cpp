#include "transport/memory/peers.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <cstring>

#include "core/order.hpp"
#include "core/signal.hpp"
#include "cpu/rows.hpp"

namespace moelane {
namespace {

std::atomic_ref<std::uint64_t> word_at(std::byte* heap, std::uint64_t offset) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(heap + offset));
}

std::atomic_ref<std::uint32_t> bell_at(std::byte* heap, std::uint64_t offset) {
  return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(heap + offset));
}

// What a sleeper leaves in its bell: never 0, and the word's name unless heaps are larger than 4 GiB, when
// another word's signal may wake it too, which does no harm.
std::uint32_t tag_of(std::uint64_t word) { return static_cast<std::uint32_t>(word) | 1; }

// The bells lie in memory that several processes may map, so the futexes are not private.
void futex_wait(std::uint32_t* bell, std::uint32_t expected, std::int64_t ns) {
  const timespec limit{ns / 1'000'000'000, ns % 1'000'000'000};
  syscall(SYS_futex, bell, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void futex_wake(std::uint32_t* bell) { syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

std::int64_t deadline_after(double seconds) {
  if (!(seconds < 9e9)) return INT64_MAX;
  return now_ns() + static_cast<std::int64_t>(seconds * 1e9);
}

std::int64_t nap_between_looks(std::int64_t waited_ns) {
  return std::clamp<std::int64_t>(waited_ns / 8, 50'000, 1'000'000);
}

void MemoryPeers::ring(int peer) const {
  if (is_far(peer)) return;  // what sleeps there does not sleep for long
  const auto bell = bell_at(heaps_[peer], bell_);
  if (bell.load(order::kBellLoad) != 0 && bell.exchange(0, std::memory_order_seq_cst) != 0) {
    futex_wake(reinterpret_cast<std::uint32_t*>(heaps_[peer] + bell_));
  }
}

void MemoryPeers::signal(int peer, std::uint64_t word, std::uint64_t value, SignalOp op) const {
  if (is_far(peer)) return far_->put_signal(peer, 0, nullptr, 0, word, value, op);
  const auto ref = word_at(heaps_[peer], word);
  if (op == SignalOp::set) {
    ref.store(value, order::kSignalStore);
  } else {
    ref.fetch_add(value, order::kSignalAdd);
  }
  if (bell_at(heaps_[peer], bell_).load(order::kBellLoad) == tag_of(word)) ring(peer);
}

void MemoryPeers::put_signal(int peer, std::uint64_t offset, const void* source, std::size_t bytes,
                             std::uint64_t word, std::uint64_t value, SignalOp op) const {
  if (is_far(peer)) return far_->put_signal(peer, offset, source, bytes, word, value, op);
  cpu::copy(heaps_[peer] + offset, source, bytes, cpu::Store::cached);
  signal(peer, word, value, op);
}

void MemoryPeers::signal_many(std::uint64_t word, std::uint64_t value) const {
  // The next rank first, so that the ranks do not all wake the same peer.
  for (int i = 1; i <= ranks_; ++i) signal((rank_ + i) % ranks_, word, value, SignalOp::set);
}

Seen MemoryPeers::wait_until(const Wait& wait) const {
  std::byte* const heap = heaps_[rank_];
  const auto word = word_at(heap, wait.word);
  progress();  // also when the signal is there: what others wait for may hang on it
  std::uint64_t seen = word.load(order::kWaitLoad);
  for (int i = 0; i < waiter_->spins && !reached(seen, wait.needed, wait.mask); ++i) {
    relax();
    progress();
    seen = word.load(order::kWaitLoad);
  }
  if (reached(seen, wait.needed, wait.mask)) return {seen, Outcome::reached};
  if (waiter_->observe == nullptr) return wait_slowly(wait);
  const std::int64_t begin = now_ns();
  const Seen result = wait_slowly(wait);
  waiter_->observe(waiter_->context, wait.peer, begin, now_ns());
  return result;
}

Seen MemoryPeers::wait_slowly(const Wait& wait) const {
  std::byte* const heap = heaps_[rank_];
  const auto word = word_at(heap, wait.word);
  std::uint64_t seen = 0;

  // What else can end the wait. The order matters: a peer may signal and then leave, so the word is looked at
  // last.
  const auto otherwise = [&]() -> Outcome {
    Outcome why = Outcome::reached;
    if (waiter_->aborted != nullptr && waiter_->aborted->load(std::memory_order_seq_cst)) {
      return Outcome::aborted;
    }
    if (word_at(heap, farewell(wait.peer)).load(order::kBellLoad) != 0) why = Outcome::peer_left;
    if (wait.watch != 0 &&
        reached(word_at(heap, wait.watch).load(order::kWaitLoad), wait.needed & kEpochMask, kEpochMask)) {
      why = Outcome::contradicted;
    }
    if (why != Outcome::reached) {
      seen = word.load(order::kWaitLoad);
      if (reached(seen, wait.needed, wait.mask)) return Outcome::reached;
    }
    return why;
  };

  const std::int64_t start = now_ns();
  std::int64_t now = start;
  while (now - start < waiter_->yield_ns && now < waiter_->deadline_ns) {
    sched_yield();
    progress();
    seen = word.load(order::kWaitLoad);
    if (reached(seen, wait.needed, wait.mask)) return {seen, Outcome::reached};
    const Outcome why = otherwise();
    if (why != Outcome::reached) return {seen, why};
    now = now_ns();
  }

  const auto bell = bell_at(heap, bell_);
  bool by_clock = false;
  while (true) {
    bell.store(tag_of(wait.word), order::kBellStore);
    seen = word.load(order::kLastLook);
    Outcome why = Outcome::reached;
    const bool there = reached(seen, wait.needed, wait.mask);
    if (there && by_clock && far_ == nullptr) waiter_->late_wakes.fetch_add(1, std::memory_order_relaxed);
    if (!there) why = otherwise();
    if (!there && why == Outcome::reached) {
      if (reached(seen, wait.needed, wait.mask)) break;
      now = now_ns();
      if (now >= waiter_->deadline_ns) why = Outcome::timed_out;
    }
    if (there || why != Outcome::reached) {
      bell.store(0, std::memory_order_relaxed);
      return {seen, why};
    }
    // Messages ring no bell: the longer the wait already is, the longer each nap may be.
    const std::int64_t most = far_ == nullptr ? waiter_->nap_ns : nap_between_looks(now - start);
    const std::int64_t nap = std::min(most, waiter_->deadline_ns - now);
    futex_wait(reinterpret_cast<std::uint32_t*>(heap + bell_), tag_of(wait.word), nap);
    by_clock = bell.load(std::memory_order_relaxed) != 0;
    progress();
  }
  bell.store(0, std::memory_order_relaxed);
  return {seen, Outcome::reached};
}

}  // namespace moelane
