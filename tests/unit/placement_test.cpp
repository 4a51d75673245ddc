#include "moelane/placement.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <functional>
#include <set>
#include <string>

#include "moelane/error.hpp"

namespace moelane {
namespace {

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return "";
}

std::vector<std::int32_t> list(std::span<const std::int32_t> values) {
  return {values.begin(), values.end()};
}

// Everything that the tables say agrees with the one that was given.
void check(const Placement& placement, const std::vector<std::int32_t>& rank_of, int ranks) {
  RC_ASSERT(placement.ranks() == ranks);
  RC_ASSERT(placement.experts() == static_cast<int>(rank_of.size()));
  RC_ASSERT(list(placement.rank_of()) == rank_of);
  RC_ASSERT(placement.first().size() == static_cast<std::size_t>(ranks) + 1);
  RC_ASSERT(placement.first().front() == 0);
  RC_ASSERT(placement.first().back() == placement.experts());
  int most = 0;
  std::vector<std::int32_t> by_rank;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::int32_t> here;
    for (std::size_t e = 0; e < rank_of.size(); ++e) {
      if (rank_of[e] != rank) continue;
      RC_ASSERT(placement.local_of()[e] == static_cast<std::int32_t>(here.size()));
      here.push_back(static_cast<std::int32_t>(e));
    }
    RC_ASSERT(list(placement.experts_of(rank)) == here);
    RC_ASSERT(placement.local_experts(rank) == static_cast<int>(here.size()));
    RC_ASSERT(placement.first()[static_cast<std::size_t>(rank)] == static_cast<std::int32_t>(by_rank.size()));
    most = std::max(most, static_cast<int>(here.size()));
    by_rank.insert(by_rank.end(), here.begin(), here.end());
  }
  RC_ASSERT(list(placement.by_rank()) == by_rank);
  RC_ASSERT(placement.max_local_experts() == most);
}

TEST(Placement, Tables) {
  const bool held = rc::check("a table", [] {
    const int ranks = *rc::gen::inRange(1, 12), experts = *rc::gen::inRange(1, 40);
    const auto rank_of = *rc::gen::container<std::vector<std::int32_t>>(
        static_cast<std::size_t>(experts), rc::gen::inRange<std::int32_t>(0, ranks));
    check(Placement::table(rank_of, ranks), rank_of, ranks);
  });
  EXPECT_TRUE(held);
}

TEST(Placement, EvenBlocks) {
  const bool held = rc::check("even", [] {
    const int ranks = *rc::gen::inRange(1, 40), experts = *rc::gen::inRange(1, 100);
    const Placement even = Placement::even(experts, ranks);
    check(even, list(even.rank_of()), ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      RC_ASSERT(even.local_experts(rank) == experts / ranks + (rank < experts % ranks ? 1 : 0));
    }
    for (std::size_t e = 1; e < static_cast<std::size_t>(experts); ++e) {
      RC_ASSERT(even.rank_of()[e - 1] <= even.rank_of()[e]);
    }
  });
  EXPECT_TRUE(held);
  EXPECT_EQ(list(Placement::even(5, 3).rank_of()), (std::vector<std::int32_t>{0, 0, 1, 1, 2}));
  EXPECT_EQ(list(Placement::even(2, 4).rank_of()), (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(Placement::even(65536, 1024).max_local_experts(), 64);
}

TEST(Placement, FingerprintsTellTablesApart) {
  std::set<std::uint64_t> seen;
  std::size_t tables = 0;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int experts = 1; experts <= 4; ++experts) {
      int all = 1;
      for (int e = 0; e < experts; ++e) all *= ranks;
      for (int n = 0; n < all; ++n, ++tables) {
        std::vector<std::int32_t> table;
        for (int e = 0, rest = n; e < experts; ++e, rest /= ranks) table.push_back(rest % ranks);
        seen.insert(Placement::table(table, ranks).fingerprint());
        EXPECT_EQ(Placement::table(table, ranks).fingerprint(), Placement::table(table, ranks).fingerprint());
      }
    }
  }
  EXPECT_EQ(seen.size(), tables);
  EXPECT_EQ(Placement::even(4, 2).fingerprint(), Placement::table({0, 0, 1, 1}, 2).fingerprint());
  // In the 48 bits that travel, too.
  std::set<std::uint64_t> low;
  for (const std::uint64_t print : seen) low.insert(print & ((std::uint64_t{1} << 48) - 1));
  EXPECT_EQ(low.size(), tables);
}

TEST(Placement, Refusals) {
  EXPECT_EQ(refusal([] { Placement::even(0, 1); }), "experts is 0, allowed are 1 to 65536");
  EXPECT_EQ(refusal([] { Placement::even(-3, 1); }), "experts is -3, allowed are 1 to 65536");
  EXPECT_EQ(refusal([] { Placement::even(65537, 1); }), "experts is 65537, allowed are 1 to 65536");
  EXPECT_EQ(refusal([] { Placement::even(8, 0); }), "ranks is 0, allowed are 1 to 1024");
  EXPECT_EQ(refusal([] { Placement::even(8, 1025); }), "ranks is 1025, allowed are 1 to 1024");
  EXPECT_EQ(refusal([] { Placement::table({}, 2); }), "experts is 0, allowed are 1 to 65536");
  EXPECT_EQ(refusal([] { Placement::table({0}, -1); }), "ranks is -1, allowed are 1 to 1024");
  EXPECT_EQ(refusal([] {
              Placement::table({0, 1, 2}, 2);
            }),
            "placement puts expert 2 on rank 2, allowed are 0 to 1");
  EXPECT_EQ(refusal([] {
              Placement::table({0, -1}, 2);
            }),
            "placement puts expert 1 on rank -1, allowed are 0 to 1");
  EXPECT_EQ(refusal([] { Placement::even(8, 2).experts_of(2); }), "rank is 2, allowed are 0 to 1");
  EXPECT_EQ(refusal([] { Placement::even(8, 2).local_experts(-1); }), "rank is -1, allowed are 0 to 1");
}

}  // namespace
}  // namespace moelane
