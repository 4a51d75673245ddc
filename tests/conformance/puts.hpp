#pragma once

#include <array>
#include <vector>

#include "conformance/bytes.hpp"
#include "conformance/fleet.hpp"

// Puts and signals: what has come when a signal has come.
namespace moelane::conformance {

template <class F>
class Puts : public testing::Test {};
TYPED_TEST_SUITE_P(Puts);

// Whether the own heap holds exactly these bytes at `offset`, between guards that nobody wrote to; cleans up.
template <Member M>
testing::AssertionResult holds(M& m, std::uint64_t offset, const std::vector<unsigned char>& expected,
                               const char* what) {
  constexpr unsigned char kGuard = 0xA5;
  std::vector<unsigned char> found(expected.size() + 2);
  m.read(offset - 1, found.data(), found.size());
  const std::vector<unsigned char> clean(found.size(), kGuard);
  m.write(offset - 1, clean.data(), clean.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (found[i + 1] != expected[i]) {
      return testing::AssertionFailure()
             << what << ": byte " << i << " of " << expected.size() << " is not there";
    }
  }
  if (found.front() != kGuard || found.back() != kGuard) {
    return testing::AssertionFailure()
           << what << ": a byte beside the " << expected.size() << " was written to";
  }
  return testing::AssertionSuccess();
}

// Guards everywhere, before anybody puts.
template <Member M>
void prepare(M& m) {
  const Arena arena(m.ranks());
  const std::vector<unsigned char> guards(arena.bytes() - arena.data(0), 0xA5);
  m.write(arena.data(0), guards.data(), guards.size());
  m.barrier();
}

// Word kinds of these tests.
enum { kRows = 0, kAck = 1, kOther = 2 };

// A round: everybody sends to all by `give(peer, round)`, checks what came by `take(source, round)`, and
// sends again only when all have read.
template <Member M, class Give, class Take>
void rounds(M& m, int from, int to, const Give& give, const Take& take) {
  const Arena arena(m.ranks());
  const auto& t = m.lane(0, {});
  for (int round = from; round < to; ++round) {
    for (int i = 1; i <= m.ranks(); ++i) give((m.rank() + i) % m.ranks(), round);
    for (int source = 0; source < m.ranks(); ++source) {
      take(source, round);
      if (testing::Test::HasFatalFailure()) return;
    }
    t.signal_many(arena.word(kAck, m.rank()), static_cast<std::uint64_t>(round));
    for (int source = 0; source < m.ranks(); ++source) {
      ASSERT_TRUE(ended(
          t.wait_until({arena.word(kAck, source), static_cast<std::uint64_t>(round), kCounterMask, source}),
          Outcome::reached));
    }
  }
}

TYPED_TEST_P(Puts, DataIsThereWhenItsSignalIs) {
  TypeParam::run(4, [](auto& m) {
    const Arena arena(m.ranks());
    prepare(m);
    const auto& t = m.lane(0, {});
    int first = 1;
    for (const std::size_t bytes : {0u, 1u, 7u, 64u, 4096u, 1u << 20}) {
      const int many = bytes > 4096 ? 4 : 50;
      const auto place = [&](int source, int dest, int round) {  // mostly at odd addresses
        return arena.data(source) + 1 + static_cast<std::uint64_t>(round * 7 + dest * 3) % 67;
      };
      const auto give = [&](int peer, int round) {
        const auto r = static_cast<std::uint64_t>(round);
        auto source = bytes_of(mix(r, std::uint64_t(m.rank()), std::uint64_t(peer)), bytes + 1);
        std::vector<unsigned char> odd(bytes + 2);
        unsigned char* const from = odd.data() + round % 2;
        std::memcpy(from, source.data(), bytes);
        t.put_signal(peer, place(m.rank(), peer, round), from, bytes, arena.word(kRows, m.rank()),
                     pack(r, bytes), SignalOp::set);
        std::memset(from, 0xEE, bytes);  // allowed as soon as the call is over
      };
      const auto take = [&](int source, int round) {
        const auto r = static_cast<std::uint64_t>(round);
        const Seen seen = t.wait_until({arena.word(kRows, source), pack(r, 0), kEpochMask, source});
        ASSERT_TRUE(ended(seen, Outcome::reached));
        ASSERT_EQ(payload_of(seen.word), bytes);
        ASSERT_EQ(epoch_of(seen.word), r);
        ASSERT_TRUE(holds(m, place(source, m.rank(), round),
                          bytes_of(mix(r, std::uint64_t(source), std::uint64_t(m.rank())), bytes), "put"));
      };
      rounds(m, first, first + many, give, take);
      if (testing::Test::HasFatalFailure()) return;
      first += many;
    }
  });
}

// Every put's own signal covers it, also on weak transports, whatever else is on its way: big puts first, and
// looked at in the opposite order.
TYPED_TEST_P(Puts, EverySignalCoversItsOwnPut) {
  TypeParam::run(3, [](auto& m) {
    const Arena arena(m.ranks());
    prepare(m);
    const auto& t = m.lane(0, {});
    constexpr int kPuts = 12;
    const auto bytes = [](int i) { return std::size_t{1} << (16 - i); };
    const auto place = [&](int source, int i) {
      return arena.data(source) + 1 + (std::uint64_t(i) << 16) + i % 3;
    };
    const auto seed = [](int round, int source, int dest, int i) {
      return mix(std::uint64_t(round * 100 + i), std::uint64_t(source), std::uint64_t(dest));
    };
    const auto give = [&](int peer, int round) {
      for (int i = 0; i < kPuts; ++i) {
        const auto data = bytes_of(seed(round, m.rank(), peer, i), bytes(i));
        t.put_signal(peer, place(m.rank(), i), data.data(), data.size(), arena.word(kOther + i, m.rank()),
                     std::uint64_t(round), SignalOp::set);
      }
    };
    const auto take = [&](int source, int round) {
      for (int i = kPuts - 1; i >= 0; --i) {
        ASSERT_TRUE(
            ended(t.wait_until({arena.word(kOther + i, source), std::uint64_t(round), kCounterMask, source}),
                  Outcome::reached));
        ASSERT_TRUE(holds(m, place(source, i), bytes_of(seed(round, source, m.rank(), i), bytes(i)), "put"));
      }
    };
    rounds(m, 1, 30, give, take);
  });
}

// One signal after many puts. A strong transport's covers them all; plain stores it covers everywhere.
TYPED_TEST_P(Puts, ASignalCoversWhatCameBefore) {
  TypeParam::run(4, [](auto& m) {
    const Arena arena(m.ranks());
    prepare(m);
    const auto& t = m.lane(0, {});
    constexpr int kPuts = 8;
    constexpr std::size_t kBytes = 3001;
    const auto place = [&](int source, int i) { return arena.data(source) + 1 + std::uint64_t(i) * 5000; };
    const auto data = [](int round, int source, int dest, int i) {
      return bytes_of(mix(std::uint64_t(round * 100 + i), std::uint64_t(source), std::uint64_t(dest)),
                      kBytes);
    };
    const auto give = [&](int peer, int round) {
      for (int i = 0; i < kPuts; ++i) {
        const auto row = data(round, m.rank(), peer, i);
        if (std::byte* const there = t.peer_pointer(peer); there != nullptr && i % 2 == 0) {
          m.store(there + place(m.rank(), i), row.data(), row.size());
        } else {
          t.put_signal(peer, place(m.rank(), i), row.data(), row.size(), arena.word(kOther, m.rank()), 1,
                       SignalOp::add);
        }
      }
      if (round % 2 == 0) t.signal(peer, arena.word(kRows, m.rank()), std::uint64_t(round), SignalOp::set);
      // The odd rounds' signals go to all at once, after the last peer's puts.
      const bool last = peer == m.rank();
      if (round % 2 == 1 && last) t.signal_many(arena.word(kRows, m.rank()), std::uint64_t(round));
    };
    const auto take = [&](int source, int round) {
      ASSERT_TRUE(ended(t.wait_until({arena.word(kRows, source), std::uint64_t(round), kCounterMask, source}),
                        Outcome::reached));
      for (int i = 0; i < kPuts; ++i) {
        const bool stored = t.peer_pointer(source) != nullptr && i % 2 == 0;
        if (!stored && !std::remove_reference_t<decltype(t)>::kStrong) continue;
        ASSERT_TRUE(holds(m, place(source, i), data(round, source, m.rank(), i), stored ? "store" : "put"));
      }
    };
    rounds(m, 1, 60, give, take);
  });
}

TYPED_TEST_P(Puts, AddsAccumulate) {
  TypeParam::run(6, [](auto& m) {
    const Arena arena(m.ranks());
    prepare(m);
    const auto& t = m.lane(0, {});
    constexpr std::uint64_t kTimes = 400;
    const std::uint64_t word = arena.word(kOther, 0);
    const auto row = [](int source, std::uint64_t i) {
      return bytes_of(mix(7, std::uint64_t(source), i), 23);
    };
    for (std::uint64_t i = 0; i < kTimes; ++i) {
      const auto data = row(m.rank(), i);
      t.put_signal(0, arena.data(m.rank()) + 1 + i * 25, data.data(), data.size(), word,
                   std::uint64_t(m.rank()) + 1, SignalOp::add);
      t.signal(0, word, std::uint64_t{1} << 32, SignalOp::add);
    }
    if (m.rank() != 0) return;
    const std::uint64_t all = kTimes * 21 + ((kTimes * 6) << 32);  // 1 + ... + 6, and a high half for each
    const Seen low = t.wait_until({word, all, kCounterMask, 1});
    ASSERT_TRUE(ended(low, Outcome::reached));
    EXPECT_EQ(low.word, all);
    for (int source = 0; source < m.ranks(); ++source) {
      for (std::uint64_t i = 0; i < kTimes; ++i) {
        ASSERT_TRUE(holds(m, arena.data(source) + 1 + i * 25, row(source, i), "added put"));
      }
    }
  });
}

TYPED_TEST_P(Puts, SignalManyReachesEverybody) {
  for (const int ranks : {1, 2, 5}) {
    TypeParam::run(ranks, [](auto& m) {
      const Arena arena(m.ranks());
      const auto& t = m.lane(0, {});
      const auto take = [&](int source, int round) {
        const Seen seen =
            t.wait_until({arena.word(kRows, source), std::uint64_t(round) * 3, kCounterMask, source});
        ASSERT_TRUE(ended(seen, Outcome::reached));
        ASSERT_EQ(seen.word, std::uint64_t(round) * 3);
      };
      const auto give = [&](int peer, int round) {
        if (peer == m.rank()) t.signal_many(arena.word(kRows, m.rank()), std::uint64_t(round) * 3);
      };
      rounds(m, 1, 100, give, take);
    });
  }
}

TYPED_TEST_P(Puts, ARankReachesItself) {
  TypeParam::run(2, [](auto& m) {
    const Arena arena(m.ranks());
    prepare(m);
    const auto& t = m.lane(0, {});
    for (int round = 1; round < 200; ++round) {
      const auto r = std::uint64_t(round);
      const auto data = bytes_of(mix(r, 1, std::uint64_t(m.rank())), 333);
      t.put_signal(m.rank(), arena.data(0) + 1, data.data(), data.size(), arena.word(kRows, 0), pack(r, 5),
                   SignalOp::set);
      t.signal(m.rank(), arena.word(kOther, 0), 2, SignalOp::add);
      const Seen seen = t.wait_until({arena.word(kRows, 0), pack(r, 0), kEpochMask, m.rank()});
      ASSERT_TRUE(ended(seen, Outcome::reached));
      ASSERT_EQ(seen.word, pack(r, 5));
      ASSERT_TRUE(holds(m, arena.data(0) + 1, data, "own put"));
      ASSERT_TRUE(
          ended(t.wait_until({arena.word(kOther, 0), r * 2, kCounterMask, m.rank()}), Outcome::reached));
    }
  });
}

TYPED_TEST_P(Puts, PeerPointersAreSymmetric) {
  TypeParam::run(4, [](auto& m) {
    const Arena arena(m.ranks());
    prepare(m);
    const auto& t = m.lane(0, {});
    ASSERT_NE(t.peer_pointer(m.rank()), nullptr);
    for (int peer = 0; peer < m.ranks(); ++peer) {
      std::byte* const there = t.peer_pointer(peer);
      if (TypeParam::kHidden) {
        EXPECT_EQ(there == nullptr, peer != m.rank());
      }
      const auto data = bytes_of(mix(9, std::uint64_t(m.rank()), std::uint64_t(peer)), 99);
      if (there != nullptr) m.store(there + arena.data(m.rank()) + 1, data.data(), data.size());
      t.signal(peer, arena.word(kRows, m.rank()), there != nullptr ? 2 : 1, SignalOp::set);
    }
    for (int source = 0; source < m.ranks(); ++source) {
      const Seen seen = t.wait_until({arena.word(kRows, source), 1, kCounterMask, source});
      ASSERT_TRUE(ended(seen, Outcome::reached));
      ASSERT_EQ(seen.word == 2, t.peer_pointer(source) != nullptr)
          << "between " << source << " and " << m.rank();
      if (seen.word == 1) continue;
      ASSERT_TRUE(holds(m, arena.data(source) + 1,
                        bytes_of(mix(9, std::uint64_t(source), std::uint64_t(m.rank())), 99), "store"));
    }
  });
}

REGISTER_TYPED_TEST_SUITE_P(Puts, DataIsThereWhenItsSignalIs, EverySignalCoversItsOwnPut,
                            ASignalCoversWhatCameBefore, AddsAccumulate, SignalManyReachesEverybody,
                            ARankReachesItself, PeerPointersAreSymmetric);

}  // namespace moelane::conformance
