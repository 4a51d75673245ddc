#include "machine/cards.hpp"

#include <gtest/gtest.h>

namespace moelane::tools {
namespace {

TEST(FairShare, IsAWholeNumberOfMultiprocessorsForEachRank) {
  EXPECT_EQ(fair_share(132, 1, 100), 132);
  EXPECT_EQ(fair_share(132, 8, 100), 16);
  EXPECT_EQ(fair_share(132, 16, 100), 8);
  EXPECT_EQ(fair_share(132, 200, 100), 1);
}

// Processes that MPS limits see what is left to them as if it were the card.
TEST(FairShare, OfLimitedProcessesIsOfTheWholeCard) {
  EXPECT_EQ(fair_share(14, 8, 12), 14);
  EXPECT_EQ(fair_share(66, 2, 50), 66);
  EXPECT_EQ(fair_share(66, 8, 50), 16);
  EXPECT_EQ(fair_share(1, 200, 0.5), 1);
}

}  // namespace
}  // namespace moelane::tools
