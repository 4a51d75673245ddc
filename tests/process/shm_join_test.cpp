#include <cmath>

#include "process/shm_help.hpp"

// How the processes of a world find each other, and what the others hear when one is wrong or gone.
namespace moelane::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ShmJoin, RanksOfAnyNumberMeet) {
  for (const int ranks : {1, 2, 3, 8, 16}) {
    const std::string name = fresh_name();
    std::vector<Child> children;
    for (int rank = ranks - 1; rank >= 0; --rank) {
      children.push_back(joining(name, rank, ranks, 30, [=](const World& world) {
        EXPECT_EQ(world.rank(), rank);
        EXPECT_EQ(world.size(), ranks);
        EXPECT_EQ(world.transport(), "shm");
        exchange(world);
      }));
    }
    for (Child& child : children) EXPECT_EQ(child.join(), "");
  }
}

TEST(ShmJoin, ARankZeroThatComesLateIsWaitedFor) {
  const std::string name = fresh_name();
  Child one = joining(name, 1, 2, 30, exchange);
  pause_for(0.3);
  Child zero = joining(name, 0, 2, 30, exchange);
  EXPECT_EQ(zero.join(), "");
  EXPECT_EQ(one.join(), "");
}

TEST(ShmJoin, WhatCannotBeIsRefused) {
  const auto refused = [](const std::string& name, int rank, int ranks, double timeout) {
    return outcome_of([&] { World::shm(name, rank, ranks, timeout); });
  };
  EXPECT_EQ(refused("x", 0, 0, 1), "argument: ranks is 0, allowed are 1 to 1024");
  EXPECT_EQ(refused("x", 0, 5000, 1), "argument: ranks is 5000, allowed are 1 to 1024");
  EXPECT_EQ(refused("x", -1, 4, 1), "argument: rank is -1, allowed are 0 to 3");
  EXPECT_EQ(refused("x", 4, 4, 1), "argument: rank is 4, allowed are 0 to 3");
  EXPECT_THAT(refused("", 0, 4, 1), StartsWith("argument: the world's name is empty"));
  EXPECT_THAT(refused("x", 0, 4, 0), StartsWith("argument: timeout is 0.0"));
  EXPECT_THAT(refused("x", 0, 4, std::nan("")), StartsWith("argument: timeout is"));
}

TEST(ShmJoin, TimeOutsNameWhoIsMissing) {
  const std::string name = fresh_name();
  const Stopwatch watch;
  Child zero = joining(name, 0, 8, 0.5);
  pause_for(0.1);
  Child two = joining(name, 2, 8, 30), seven = joining(name, 7, 8, 30);
  const std::string expected =
      "timeout: rank 0 waited 0.5 s for ranks 1, 3, 4, 5, 6 of 8 to join world '" + name + "'";
  EXPECT_EQ(zero.join(), expected);
  EXPECT_EQ(two.join(), expected);
  EXPECT_EQ(seven.join(), expected);
  EXPECT_LT(watch.seconds(), 3);
}

TEST(ShmJoin, ARankThatGivesUpTellsTheOthers) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 4, 30), one = joining(name, 1, 4, 30), two = joining(name, 2, 4, 0.3);
  const std::string expected = "timeout: rank 2 gave up before rank 3 of 4 could join world '" + name + "'";
  EXPECT_EQ(two.join(), expected);
  EXPECT_EQ(zero.join(), expected);
  EXPECT_EQ(one.join(), expected);
}

TEST(ShmJoin, WithoutRankZeroTheOthersSaySo) {
  const std::string name = fresh_name();
  Child one = joining(name, 1, 2, 0.3);
  EXPECT_EQ(one.join(), "timeout: rank 1 waited 0.3 s for rank 0 to join world '" + name + "'");
}

TEST(ShmJoin, AnotherSizeIsRefusedEverywhere) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 4, 30), one = joining(name, 1, 4, 30);
  pause_for(0.2);
  Child two = joining(name, 2, 3, 30);
  const auto expected =
      AllOf(StartsWith("mismatch: rank 2"), HasSubstr("(process " + std::to_string(two.pid()) + ")"),
            HasSubstr("of 3 ranks, but rank 0 opened it for 4"));
  EXPECT_THAT(zero.join(), expected);
  EXPECT_THAT(one.join(), expected);
  EXPECT_THAT(two.join(), expected);
}

TEST(ShmJoin, ARankThatComesTwiceIsRefusedAndTheWorldGoesOn) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 3, 30, exchange), one = joining(name, 1, 3, 30, exchange);
  pause_for(0.3);
  Child again = joining(name, 1, 3, 30, exchange);
  EXPECT_EQ(again.join(), "argument: rank 1 of world '" + name + "' is there already (process " +
                              std::to_string(one.pid()) + ")");
  Child two = joining(name, 2, 3, 30, exchange);
  for (Child* child : {&zero, &one, &two}) EXPECT_EQ(child->join(), "");
}

TEST(ShmJoin, ARankThatCameTwiceExplainsTheOneThatIsMissing) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 3, 0.7), one = joining(name, 1, 3, 30);
  pause_for(0.2);
  Child again = joining(name, 1, 3, 30);
  EXPECT_THAT(again.join(), StartsWith("argument: rank 1"));
  EXPECT_EQ(zero.join(),
            "timeout: rank 0 waited 0.7 s for rank 2 of 3 to join world '" + name + "'; rank 1 came twice");
}

TEST(ShmJoin, ANameInUseIsRefused) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 2, 30, exchange);
  pause_for(0.2);
  Child other = joining(name, 0, 2, 30);
  EXPECT_THAT(other.join(), AllOf(StartsWith("argument: world '" + name + "' has a rank 0 already (process " +
                                             std::to_string(zero.pid()) + ")")));
  Child one = joining(name, 1, 2, 30, exchange);
  EXPECT_EQ(one.join(), "");
  EXPECT_EQ(zero.join(), "");
}

TEST(ShmJoin, ARankKilledWhileJoiningIsNamedAtOnce) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 4, 30), one = joining(name, 1, 4, 30), two = joining(name, 2, 4, 30);
  pause_for(0.3);
  const Stopwatch watch;
  two.kill();
  const std::string expected = "transport: rank 2 went away before all ranks could join world '" + name + "'";
  EXPECT_EQ(zero.join(), expected);
  EXPECT_EQ(one.join(), expected);
  EXPECT_LT(watch.seconds(), 2);
}

TEST(ShmJoin, AKilledRankZeroIsNamedAtOnceAndLeavesTheNameFree) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 3, 30), one = joining(name, 1, 3, 30);
  pause_for(0.3);
  const Stopwatch watch;
  zero.kill();
  EXPECT_EQ(one.join(), "transport: rank 0 went away before all ranks could join world '" + name + "'");
  EXPECT_LT(watch.seconds(), 2);
  zero.join();
  std::vector<Child> again;
  for (int rank = 0; rank < 3; ++rank) again.push_back(joining(name, rank, 3, 30, exchange));
  for (Child& child : again) EXPECT_EQ(child.join(), "");
}

TEST(ShmJoin, LongNamesThatDifferAtTheirEndAreDifferent) {
  const std::string name = fresh_name() + std::string(300, 'n');
  Child zero_a = joining(name + "a", 0, 2, 30, exchange), zero_b = joining(name + "b", 0, 2, 30, exchange);
  Child one_b = joining(name + "b", 1, 2, 30, exchange), one_a = joining(name + "a", 1, 2, 30, exchange);
  for (Child* child : {&zero_a, &zero_b, &one_a, &one_b}) EXPECT_EQ(child->join(), "");
  Child alone = joining(name + "c", 1, 2, 0.1);
  EXPECT_THAT(alone.join(), AllOf(StartsWith("timeout"), HasSubstr("nnn...'")));
}

}  // namespace
}  // namespace moelane::test
