#pragma once

#include <atomic>
#include <cstdint>

namespace moelane {

// How one lane of a CPU rank waits: first it spins, then it yields, then it sleeps on a futex.
struct Waiter {
  std::int64_t deadline_ns = 0;  // CLOCK_MONOTONIC; INT64_MAX: no bound
  const std::atomic<bool>* aborted = nullptr;
  int spins = 0;                      // looks before the first yield; 0 where ranks share cores
  std::int64_t yield_ns = 0;          // how long to yield before the first sleep
  std::int64_t nap_ns = 100'000'000;  // longest single sleep: a bound on what a lost wake-up could cost
  // Called after every wait that did not find its signal at once.
  void (*observe)(void* context, int peer, std::int64_t begin_ns, std::int64_t end_ns) = nullptr;
  void* context = nullptr;
  std::atomic<std::uint64_t> late_wakes{0};  // naps that ended by the clock with the signal there
};

std::int64_t now_ns();  // CLOCK_MONOTONIC

// A deadline `seconds` from now; infinity gives INT64_MAX.
std::int64_t deadline_after(double seconds);

// How long one who has waited for `waited_ns` and must look for messages may sleep before the next look.
std::int64_t nap_between_looks(std::int64_t waited_ns);

}  // namespace moelane
