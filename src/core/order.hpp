#pragma once

#include <atomic>
#include <cstdint>

// Every memory order of the CPU transports, each with a number and its reason. A build with
// -DMOELANE_WEAKEN=n makes order n relaxed; scripts/weaken shows that TSan or a test then fails
// (docs/protocol.md, "Memory order").
#ifndef MOELANE_WEAKEN
#define MOELANE_WEAKEN 0
#endif

namespace moelane::order {

constexpr std::memory_order weakened(int site, std::memory_order order) {
  return site == MOELANE_WEAKEN ? std::memory_order_relaxed : order;
}

// 1: a signal publishes the bytes put before it. Sequentially consistent, because the signaller next looks
// whether
//    the waiter sleeps (3): either the waiter sees the signal or the signaller sees the sleeper.
inline constexpr std::memory_order kSignalStore = weakened(1, std::memory_order_seq_cst);
// 2: an added signal publishes too, and continues the release sequence of earlier ones.
inline constexpr std::memory_order kSignalAdd = weakened(2, std::memory_order_seq_cst);
// 3: the waiter announces its sleep before it looks at the signal for the last time.
inline constexpr std::memory_order kBellStore = weakened(3, std::memory_order_seq_cst);
// 4: whoever sees a signal sees the bytes before it.
inline constexpr std::memory_order kWaitLoad = weakened(4, std::memory_order_acquire);

// The two loads of the sleep protocol compile to plain loads on x86 and to ldar on Arm; argued in
// docs/protocol.md.
inline constexpr std::memory_order kBellLoad = std::memory_order_seq_cst;
inline constexpr std::memory_order kLastLook = std::memory_order_seq_cst;

}  // namespace moelane::order
