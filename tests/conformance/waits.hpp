#pragma once

#include <chrono>
#include <cmath>
#include <thread>

#include "conformance/bytes.hpp"
#include "conformance/fleet.hpp"

// Waits: what ends them, and when.
namespace moelane::conformance {

template <class F>
class Waits : public testing::Test {};
TYPED_TEST_SUITE_P(Waits);

// Word kinds of these tests.
enum { kAwaited = 0, kWatched = 1, kDone = 2, kPing = 3, kPong = 4 };

inline constexpr double kPrompt =
    2.5;  // seconds: far more than a wake-up takes on a busy machine, less than a nap
inline constexpr Stage kStages[] = {Stage::usual, Stage::spin, Stage::yield, Stage::sleep};

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline void pause_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TYPED_TEST_P(Waits, TimeOutWithinTheirBoundAndSayWhatTheySaw) {
  TypeParam::run(2, [](auto& m) {
    const Arena arena(m.ranks());
    m.lane(0, {}).signal(1 - m.rank(), arena.word(kAwaited, m.rank()), 41, SignalOp::set);
    m.barrier();
    for (const Stage stage : kStages) {
      constexpr double kBound = 0.15;
      const double start = seconds_now();
      const Seen seen = m.lane(0, {kBound, stage, 5})
                            .wait_until({arena.word(kAwaited, 1 - m.rank()), 42, kCounterMask, 1 - m.rank()});
      const double took = seconds_now() - start;
      ASSERT_TRUE(ended(seen, Outcome::timed_out));
      EXPECT_EQ(seen.word, 41u);
      EXPECT_GE(took, kBound - 0.001);
      EXPECT_LT(took, kBound + kPrompt);
    }
    m.barrier();
  });
}

TYPED_TEST_P(Waits, ASignalThatIsThereEndsThemPastTheirBound) {
  TypeParam::run(2, [](auto& m) {
    const Arena arena(m.ranks());
    m.lane(0, {}).signal(1 - m.rank(), arena.word(kAwaited, m.rank()), 42, SignalOp::set);
    m.barrier();
    for (const Stage stage : kStages) {
      const Seen seen = m.lane(0, {0, stage, 5})
                            .wait_until({arena.word(kAwaited, 1 - m.rank()), 42, kCounterMask, 1 - m.rank()});
      ASSERT_TRUE(ended(seen, Outcome::reached));
    }
  });
}

TYPED_TEST_P(Waits, AnInfiniteBoundIsNone) {
  TypeParam::run(2, [](auto& m) {
    const Arena arena(m.ranks());
    if (m.rank() == 1) pause_for(0.3);
    const auto& t = m.lane(0, {INFINITY, Stage::usual, 0.05});
    t.signal(1 - m.rank(), arena.word(kAwaited, m.rank()), 1, SignalOp::set);
    ASSERT_TRUE(ended(t.wait_until({arena.word(kAwaited, 1 - m.rank()), 1, kCounterMask, 1 - m.rank()}),
                      Outcome::reached));
  });
}

TYPED_TEST_P(Waits, CompareEpochsAndCountersWhereTheyWrap) {
  TypeParam::run(2, [](auto& m) {
    const Arena arena(m.ranks());
    const auto& t = m.lane(0, {});
    const std::uint64_t epoch = (std::uint64_t{1} << 40) - 3, counter = ~std::uint64_t{0} - 4;
    const std::uint64_t step = 3;
    const int peer = 1 - m.rank();
    t.signal(peer, arena.word(kAwaited, m.rank()), pack(epoch, 0), SignalOp::set);
    t.signal(peer, arena.word(kDone, m.rank()), counter, SignalOp::add);
    m.barrier();
    for (std::uint64_t i = 1; i < 8; ++i) {
      const Wait next{arena.word(kAwaited, peer), pack(epoch + i, 0), kEpochMask, peer};
      const Wait sum{arena.word(kDone, peer), counter + i * step, kCounterMask, peer};
      // Not before it is sent, though the number may be smaller already than what is there.
      ASSERT_TRUE(ended(m.lane(0, {0.001, Stage::usual, 5}).wait_until(next), Outcome::timed_out));
      ASSERT_TRUE(ended(m.lane(0, {0.001, Stage::usual, 5}).wait_until(sum), Outcome::timed_out));
      m.barrier();
      const std::uint64_t payload = mix(i) & kPayloadMask;  // does not count
      t.signal(peer, arena.word(kAwaited, m.rank()), pack(epoch + i, payload), SignalOp::set);
      t.signal(peer, arena.word(kDone, m.rank()), step, SignalOp::add);
      m.lane(0, {});
      const Seen seen = t.wait_until(next);
      ASSERT_TRUE(ended(seen, Outcome::reached));
      ASSERT_EQ(seen.word, pack(epoch + i, payload));
      ASSERT_TRUE(ended(t.wait_until(sum), Outcome::reached));
      // What is behind counts as reached.
      ASSERT_TRUE(
          ended(t.wait_until({next.word, pack(epoch + i - 1, 0), kEpochMask, peer}), Outcome::reached));
      m.barrier();
    }
  });
}

TYPED_TEST_P(Waits, EndPromptlyWhenAborted) {
  for (const Stage stage : kStages) {
    TypeParam::run(2, [stage](auto& m) {
      const Arena arena(m.ranks());
      const Wait wait{arena.word(kAwaited, 1 - m.rank()), 1, kCounterMask, 1 - m.rank()};
      const auto& t = m.lane(0, {30, stage, 30});
      double when = 0;
      std::thread other([&] {
        pause_for(0.05);
        when = seconds_now();
        m.abort(0);
      });
      const Seen seen = t.wait_until(wait);
      const double end = seconds_now();
      other.join();
      ASSERT_TRUE(ended(seen, Outcome::aborted));
      EXPECT_LT(end - when, kPrompt);
      // And every later one.
      ASSERT_TRUE(ended(t.wait_until(wait), Outcome::aborted));
      EXPECT_LT(seconds_now() - end, kPrompt);
      m.barrier();
    });
  }
}

TYPED_TEST_P(Waits, EndWhenThePeerHasLeft) {
  for (const Stage stage : kStages) {
    TypeParam::run(3, [stage](auto& m) {
      const Arena arena(m.ranks());
      if (m.rank() != 0) {
        pause_for(0.05);
        if (m.rank() == 1) m.leave(0);
        pause_for(0.05);
        m.lane(0, {}).signal(0, arena.word(kAwaited, m.rank()), 1, SignalOp::set);
        return;
      }
      // Rank 1 leaves without its signal; that is no reason not to wait for rank 2.
      const auto& t = m.lane(0, {30, stage, 30});
      const double start = seconds_now();
      const Seen two = t.wait_until({arena.word(kAwaited, 2), 1, kCounterMask, 2});
      ASSERT_TRUE(ended(two, Outcome::reached));
      ASSERT_TRUE(ended(t.wait_until({arena.word(kAwaited, 1), 2, kCounterMask, 1}), Outcome::peer_left));
      EXPECT_LT(seconds_now() - start, kPrompt + 0.2);
    });
    TypeParam::run(2, [stage](auto& m) {
      const Arena arena(m.ranks());
      if (m.rank() == 1) {
        pause_for(0.05);
        return m.leave(0);
      }
      const auto& t = m.lane(1, {30, stage, 30});
      const double start = seconds_now();
      const Seen one = t.wait_until({arena.word(kAwaited, 1), 1, kCounterMask, 1});
      ASSERT_TRUE(ended(one, Outcome::peer_left));
      EXPECT_EQ(one.word, 0u);
      EXPECT_LT(seconds_now() - start, kPrompt + 0.1);
    });
  }
}

TYPED_TEST_P(Waits, ASignalBeforeAFarewellWins) {
  for (const Stage stage : kStages) {
    TypeParam::run(2, [stage](auto& m) {
      const Arena arena(m.ranks());
      const auto& t = m.lane(0, {30, stage, 5});
      for (std::uint64_t round = 1; round <= 150; ++round) {
        if (m.rank() == 1) {
          if (round % 3 == 0) pause_for(2e-6 * static_cast<double>(mix(round) % 100));
          t.signal(0, arena.word(kAwaited, 1), round, SignalOp::set);
          m.leave(0);
        } else {
          ASSERT_TRUE(
              ended(t.wait_until({arena.word(kAwaited, 1), round, kCounterMask, 1}), Outcome::reached));
        }
        m.barrier();
        if (m.rank() == 0) m.forget(1);  // only in a test does anybody come back
        m.barrier();
      }
    });
  }
}

TYPED_TEST_P(Waits, TheOtherWaysSignalContradicts) {
  for (const Stage stage : kStages) {
    TypeParam::run(2, [stage](auto& m) {
      const Arena arena(m.ranks());
      const auto& t = m.lane(0, {30, stage, 0.03});
      for (std::uint64_t round = 1; round <= 20; ++round) {
        const bool both = round % 2 == 0;
        if (m.rank() == 1) {
          if (round % 5 < 2) pause_for(0.01);
          // The watched word carries only an epoch that counts; the one behind does not contradict.
          t.signal(0, arena.word(kWatched, 1), pack(round - 1, 77), SignalOp::set);
          if (both) t.signal(0, arena.word(kAwaited, 1), pack(round, 3), SignalOp::set);
          t.signal(0, arena.word(kWatched, 1), pack(round, 99), SignalOp::set);
        } else {
          const double start = seconds_now();
          const Seen seen =
              t.wait_until({arena.word(kAwaited, 1), pack(round, 0), kEpochMask, 1, arena.word(kWatched, 1)});
          ASSERT_TRUE(ended(seen, both ? Outcome::reached : Outcome::contradicted));
          EXPECT_LT(seconds_now() - start, kPrompt);
        }
        m.barrier();
      }
    });
  }
}

// A lane's wake-ups are its own: two threads of each rank, each with its lane and partner, one of them much
// slower.
TYPED_TEST_P(Waits, TwoLanesOfARankWaitAtOnce) {
  for (const Stage stage : {Stage::usual, Stage::sleep}) {
    TypeParam::run(2, [stage](auto& m) {
      const Arena arena(m.ranks());
      const int peer = 1 - m.rank();
      const auto play = [&](int lane, std::uint64_t times, double pause) {
        const auto& t = m.lane(lane, {30, stage, 5});
        for (std::uint64_t i = 1; i <= times; ++i) {
          if (pause > 0 && m.rank() == 1) pause_for(pause);
          t.signal(peer, arena.word(kPing + lane, m.rank()), i, SignalOp::set);
          ASSERT_TRUE(
              ended(t.wait_until({arena.word(kPing + lane, peer), i, kCounterMask, peer}), Outcome::reached));
        }
      };
      std::thread other(play, 1, 20, 0.01);
      play(0, 3000, 0);
      other.join();
      EXPECT_EQ(m.late_wakes(0) + m.late_wakes(1), 0u);
    });
  }
}

REGISTER_TYPED_TEST_SUITE_P(Waits, TimeOutWithinTheirBoundAndSayWhatTheySaw,
                            ASignalThatIsThereEndsThemPastTheirBound, AnInfiniteBoundIsNone,
                            CompareEpochsAndCountersWhereTheyWrap, EndPromptlyWhenAborted,
                            EndWhenThePeerHasLeft, ASignalBeforeAFarewellWins, TheOtherWaysSignalContradicts,
                            TwoLanesOfARankWaitAtOnce);

}  // namespace moelane::conformance
