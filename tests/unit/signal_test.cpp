#include "core/signal.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "core/farewell.hpp"

namespace moelane {
namespace {

constexpr std::uint64_t kEpochs = std::uint64_t{1} << 40;

TEST(Signal, EpochAndPayload) {
  const bool held = rc::check("pack", [] {
    const auto epoch = *rc::gen::arbitrary<std::uint64_t>(), payload = *rc::gen::arbitrary<std::uint64_t>();
    const std::uint64_t word = pack(epoch, payload);
    RC_ASSERT(epoch_of(word) == epoch % kEpochs);
    RC_ASSERT(payload_of(word) == payload % (1U << 24));
  });
  EXPECT_TRUE(held);
}

// A count of zero is news, and stale counts are none: whatever the payloads, only the epoch decides.
TEST(Signal, ReachedByTheEpochAlone) {
  const bool held = rc::check("reached", [] {
    const std::uint64_t epoch = *rc::gen::arbitrary<std::uint64_t>();
    const std::uint64_t payload = *rc::gen::inRange<std::uint64_t>(0, 1U << 24);
    const std::uint64_t ahead = *rc::gen::inRange<std::uint64_t>(0, kEpochs / 2);
    const std::uint64_t behind = *rc::gen::inRange<std::uint64_t>(1, kEpochs / 2);
    RC_ASSERT(reached(pack(epoch + ahead, payload), pack(epoch, 0), kEpochMask));
    RC_ASSERT(!reached(pack(epoch - behind, payload), pack(epoch, 0), kEpochMask));
  });
  EXPECT_TRUE(held);
  for (const std::uint64_t epoch :
       {std::uint64_t{0}, std::uint64_t{1}, kEpochs - 1, kEpochs / 2, ~std::uint64_t{0}}) {
    EXPECT_TRUE(reached(pack(epoch, 0), pack(epoch, 0), kEpochMask));
    EXPECT_TRUE(reached(pack(epoch, kPayloadMask), pack(epoch, 0), kEpochMask));
    EXPECT_FALSE(reached(pack(epoch - 1, kPayloadMask), pack(epoch, 0), kEpochMask));
    EXPECT_TRUE(reached(pack(epoch + 1, 0), pack(epoch, 0), kEpochMask));
    EXPECT_TRUE(reached(pack(epoch + kEpochs / 2 - 1, 0), pack(epoch, 0), kEpochMask));
    EXPECT_FALSE(reached(pack(epoch - kEpochs / 2 + 1, 0), pack(epoch, 0), kEpochMask));
  }
}

TEST(Signal, Counters) {
  for (const std::uint64_t n :
       {std::uint64_t{0}, std::uint64_t{5}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    EXPECT_TRUE(reached(n, n, kCounterMask));
    EXPECT_TRUE(reached(n + 1, n, kCounterMask));
    EXPECT_FALSE(reached(n - 1, n, kCounterMask));
  }
}

TEST(Signal, DispatchPayload) {
  for (const WireWay way : {WireWay::none, WireWay::put, WireWay::direct}) {
    for (const std::int32_t tokens : {0, 1, 128, (1 << 22) - 1}) {
      const std::uint64_t word = pack(kEpochs - 1, dispatch_payload(way, tokens));
      EXPECT_EQ(way_of(word), way);
      EXPECT_EQ(tokens_of(word), tokens);
      EXPECT_EQ(epoch_of(word), kEpochs - 1);
    }
  }
}

TEST(Signal, CombinePayload) {
  for (const WireWay way : {WireWay::put, WireWay::direct}) {
    for (const bool dropped : {false, true}) {
      for (const std::uint64_t print : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0xABCDE}}) {
        const std::uint64_t word = pack(7, combine_payload(way, dropped, print));
        EXPECT_EQ(way_of(word), way);
        EXPECT_EQ((word & kDroppedBit) != 0, dropped);
        EXPECT_EQ(word & kFingerprintMask, print & kFingerprintMask);
        EXPECT_EQ(epoch_of(word), 7U);
      }
    }
  }
}

TEST(Farewell, SaysWhyAndOverWhom) {
  for (const Leaving why : {Leaving::closed, Leaving::aborted, Leaving::failed}) {
    for (const int blamed : {-1, 0, 1, 1023}) {
      const std::uint64_t word = farewell_word(why, blamed);
      EXPECT_NE(word, 0U);
      EXPECT_EQ(leaving_of(word), why);
      EXPECT_EQ(blamed_of(word), blamed);
    }
  }
  EXPECT_EQ(leaving_of(0), Leaving::not_yet);
}

}  // namespace
}  // namespace moelane
