#pragma once

#include <sched.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "conformance/bytes.hpp"
#include "conformance/fleet.hpp"

// Many rounds of waits that sleep, which hunt lost wake-ups: a signal that came while the waiter went to
// sleep, and did not wake it. ThreadSanitizer cannot see those. A waiter that was woken by its clock and
// found its signal there counts it (late_wakes); the clock is set so late that the signaller cannot still be
// between signal and wake-up.
namespace moelane::conformance {

template <class F>
class Crowd : public testing::Test {};
TYPED_TEST_SUITE_P(Crowd);

enum { kTurn = 0, kGate = 1 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlow = 10;  // fewer rounds
#else
inline constexpr int kSlow = 1;
#endif

inline constexpr double kLate = 0.5;       // the clock that finds a lost wake-up
inline constexpr std::uint64_t kStop = 1;  // payload: somebody has seen enough

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// `count` small steps of a processor.
inline void dawdle(std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) asm volatile("" ::: "memory");
}

// The n-th of the processors that this thread may use, or -1.
inline int processor(int n) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed) && n-- == 0) return cpu;
  }
  return -1;
}
inline void pin_to(int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<std::size_t>(cpu), &only);
  sched_setaffinity(0, sizeof only, &only);
}

// Everybody signals all and waits for all, `rounds` times, at slightly random moments. Ends early, for all at
// the same round, when somebody was woken late.
template <Member M>
void all_to_all(M& m, int rounds, const Patience& patience) {
  const Arena arena(m.ranks());
  const auto& t = m.lane(0, patience);
  const auto ranks = static_cast<std::uint64_t>(m.ranks());
  m.barrier();
  bool stop = false;
  for (int round = 1; round <= rounds && !stop; ++round) {
    const auto r = static_cast<std::uint64_t>(round);
    const std::uint64_t dice = mix(r, static_cast<std::uint64_t>(m.rank()), ranks);
    if (dice % 4 == 0) dawdle(dice % 4096);
    t.signal_many(arena.word(kTurn, m.rank()), pack(r, m.late_wakes(0) > 0 ? kStop : 0));
    if (dice % 5 == 0) dawdle(dice % 1024);
    for (int i = 0; i < m.ranks(); ++i) {
      const int source = static_cast<int>((static_cast<std::uint64_t>(i) + dice) % ranks);
      const Seen seen = t.wait_until({arena.word(kTurn, source), pack(r, 0), kEpochMask, source});
      ASSERT_TRUE(ended(seen, Outcome::reached)) << "in round " << round;
      // A fast peer may be one round ahead; then its word is of that round, which all will see.
      if (epoch_of(seen.word) == r && payload_of(seen.word) == kStop) stop = true;
    }
  }
  EXPECT_EQ(m.late_wakes(0), 0u) << "wake-ups got lost";
  m.barrier();
}

TYPED_TEST_P(Crowd, MoreRanksThanCoresGetOn) {
  const Stopwatch watch;
  TypeParam::run(16, [](auto& m) { all_to_all(m, 300 / kSlow, {30, Stage::usual, kLate}); });
  EXPECT_LT(watch.seconds(), 20);
}

TYPED_TEST_P(Crowd, NoWakeUpIsLostAmongMany) {
  const Stopwatch watch;
  for (const int ranks : {2, 3, 5, 8}) {
    TypeParam::run(ranks, [](auto& m) {
      all_to_all(m, 160'000 / kSlow / (m.ranks() * m.ranks()), {30, Stage::sleep, kLate});
    });
  }
  EXPECT_LT(watch.seconds(), 60);
}

// A wake-up is lost when two processors do this at one moment: one stores the signal and looks for a sleeper,
// the other announces its sleep and looks for the signal, and both stores are still on their way when both
// look. So two ranks on two processors meet at a gate, spinning; then one signals and the other goes to
// sleep, each after a few steps more or less. Other stores, to cache lines that the other side has written
// to, keep the two on their way for longer: with an order weakened, one round in twenty then loses its
// wake-up, without them one in some hundreds.
TYPED_TEST_P(Crowd, NoWakeUpIsLostBetweenTwo) {
  if (processor(1) < 0) GTEST_SKIP() << "one processor alone loses no wake-ups";
  const Stopwatch watch;
  TypeParam::run(2, [](auto& m) {
    const Arena arena(m.ranks());
    pin_to(processor(m.rank()));
    const auto& t = m.lane(0, {60, Stage::sleep, kLate});
    const auto& gate = m.lane(1, {60, Stage::spin, kLate});
    const int peer = 1 - m.rank();
    std::byte* const there = t.peer_pointer(peer);
    m.barrier();
    bool stop = false;
    for (int round = 1; round <= 50'000 / kSlow && !stop; ++round) {
      const auto r = static_cast<std::uint64_t>(round);
      const std::uint64_t dice = mix(r, static_cast<std::uint64_t>(m.rank()), 0);
      const std::uint64_t lines = (dice >> 32) % 16;
      const std::uint64_t mine = m.late_wakes(0) > 0 ? kStop : 0;
      gate.signal(peer, arena.word(kGate, m.rank()), pack(r, mine), SignalOp::set);
      const Seen open = gate.wait_until({arena.word(kGate, peer), pack(r, 0), kEpochMask, peer});
      ASSERT_TRUE(ended(open, Outcome::reached)) << "at gate " << round;
      stop = mine == kStop || payload_of(open.word) == kStop;
      dawdle(dice % 1024);
      if ((round + m.rank()) % 2 == 0) {
        for (std::uint64_t i = 0; i < lines && there != nullptr; ++i) {
          std::memcpy(there + arena.data(0) + i * 64, &r, sizeof r);
        }
        t.signal(peer, arena.word(kTurn, m.rank()), r, SignalOp::set);
      } else {
        for (std::uint64_t i = 0; i < lines; ++i) m.write(arena.data(0) + i * 64 + 32, &r, sizeof r);
        ASSERT_TRUE(ended(t.wait_until({arena.word(kTurn, peer), r, kCounterMask, peer}), Outcome::reached))
            << "in round " << round;
      }
    }
    EXPECT_EQ(m.late_wakes(0), 0u) << "wake-ups got lost";
    m.barrier();
  });
  EXPECT_LT(watch.seconds(), 60);
}

REGISTER_TYPED_TEST_SUITE_P(Crowd, MoreRanksThanCoresGetOn, NoWakeUpIsLostAmongMany,
                            NoWakeUpIsLostBetweenTwo);

}  // namespace moelane::conformance
