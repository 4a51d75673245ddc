#include <algorithm>
#include <cmath>

#include "process/shm_help.hpp"

// How the processes of a world find each other, and what happens when they do not.
namespace moelane::test {
namespace {

using detail::shm::Fd;
using detail::shm::Kind;
using detail::shm::Message;
using detail::shm::send;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

// Shows that the world works.
void exchange(const World& world) {
  World mine = world;
  std::vector<int> all(static_cast<std::size_t>(mine.size()), -1);
  const int rank = mine.rank() * 3;
  mine.all_gather(&rank, sizeof rank, all.data());
  for (int r = 0; r < mine.size(); ++r) ASSERT_EQ(all[static_cast<std::size_t>(r)], r * 3);
  mine.barrier();
}

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
  EXPECT_EQ(two.join(), "timeout: rank 2 waited 0.3 s for the other ranks to join world '" + name + "'");
  const std::string expected = "timeout: rank 2 gave up before rank 3 of 4 could join world '" + name + "'";
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

TEST(ShmJoin, StrangersAreShownOut) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 3, 30, exchange);
  std::vector<Fd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(stranger(name));
  stranger(name);  // hangs up
  Child one = joining(name, 1, 3, 30, exchange);
  std::vector<Fd> rude;
  for (const std::size_t bytes :
       {std::size_t{1}, sizeof(Message) - 1, sizeof(Message), sizeof(Message) * 8}) {
    const std::vector<char> rubbish(bytes, 'x');
    rude.push_back(stranger(name));
    EXPECT_EQ(::send(rude.back().get(), rubbish.data(), bytes, 0), static_cast<ssize_t>(bytes));
  }
  for (const int rank : {-5, 0, 3, 1 << 30}) {  // no process that uses the library says these
    Message hello;
    hello.kind = Kind::hello;
    hello.rank = rank;
    hello.ranks = 3;
    rude.push_back(stranger(name));
    send(rude.back(), hello, 1);  // and hands over a descriptor
  }
  for (const std::uint32_t kind : {1u, 2u, 3u, 77u}) {
    Message message;
    message.kind = static_cast<Kind>(kind);
    message.rank = 1;
    message.ranks = 3;
    rude.push_back(stranger(name));
    send(rude.back(), message);
  }
  // Each was hung up on, without a word.
  for (const Fd& guest : rude) {
    char byte;
    pollfd polled{guest.get(), POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 5000), 1);
    EXPECT_LE(recv(guest.get(), &byte, 1, MSG_DONTWAIT), 0);
  }
  const Stopwatch watch;
  Child two = joining(name, 2, 3, 30, exchange);
  for (Child* child : {&zero, &one, &two}) EXPECT_EQ(child->join(), "");
  EXPECT_LT(watch.seconds(), 3);
}

TEST(ShmJoin, AnotherVersionIsNamed) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 2, 30);
  const Fd guest = stranger(name);
  Message hello;
  hello.version = 99;
  send(guest, hello);
  EXPECT_THAT(zero.join(),
              AllOf(StartsWith("mismatch: a rank (process"), HasSubstr("another version of moelane")));
  // And the other way round: a rank 0 of another version.
  const auto door = detail::shm::listen_at(name);
  ASSERT_TRUE(door);
  Child one = joining(name, 1, 2, 30);
  pollfd polled{door->get(), POLLIN, 0};
  ASSERT_EQ(poll(&polled, 1, 5000), 1);
  const Fd knocking = detail::shm::accept_from(*door);
  send(knocking, hello);
  EXPECT_THAT(one.join(), AllOf(StartsWith("mismatch: rank 0"), HasSubstr("another version of moelane")));
}

TEST(ShmJoin, OtherUsersStayOutside) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can play another user";
  constexpr uid_t kOther = 65534;
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 2, 0.6);
  Child other([&] {
    EXPECT_EQ(setresuid(kOther, kOther, kOther), 0);
    const auto [address, bytes] = address_of(0, name);
    pause_for(0.2);
    const Fd link(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    EXPECT_EQ(connect(link.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    Message hello;
    hello.kind = Kind::hello;
    hello.rank = 1;
    hello.ranks = 2;
    send(link, hello);
    char byte;
    EXPECT_LE(recv(link.get(), &byte, 1, 0), 0);
    return std::string();
  });
  EXPECT_EQ(other.join(), "");
  EXPECT_THAT(zero.join(), StartsWith("timeout: rank 0 waited 0.6 s for rank 1 of 2"));

  const std::string taken = fresh_name();
  Child thief([&] {
    EXPECT_EQ(setresuid(kOther, kOther, kOther), 0);
    const auto [address, bytes] = address_of(0, taken);
    const Fd door(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    EXPECT_EQ(bind(door.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(listen(door.get(), 5), 0);
    pause_for(30);
    return std::string();
  });
  Child one = joining(taken, 1, 2, 10);
  EXPECT_EQ(one.join(), "transport: another user holds the name of world '" + taken + "'");
  thief.kill();
  thief.join();
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

TEST(ShmJoin, TheEnvironmentNamesTheWorld) {
  using Variables = std::vector<std::pair<const char*, std::string>>;
  const auto from = [](const Variables& variables) {
    return Child([=] {
      for (const char* each :
           {"RANK", "WORLD_SIZE", "MOELANE_WORLD", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE"}) {
        unsetenv(each);
      }
      for (const auto& [variable, value] : variables) setenv(variable, value.c_str(), 1);
      return outcome_of([] { exchange(World::shm_from_environment(10)); });
    });
  };
  const std::string name = fresh_name(), port = std::to_string(10000 + getpid() % 50000);
  Child zero = from({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MOELANE_WORLD", name}, {"MASTER_PORT", "x"}});
  Child one = from({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MOELANE_WORLD", name}});
  Child tzero = from({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", port}});
  Child tone = from({{"RANK", "1"},
                     {"WORLD_SIZE", "2"},
                     {"LOCAL_WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "::1"},
                     {"MASTER_PORT", port}});
  for (Child* child : {&zero, &one, &tzero, &tone}) EXPECT_EQ(child->join(), "");

  const auto refused = [&](const Variables& variables, const std::string& sentence) {
    EXPECT_THAT(from(variables).join(), StartsWith("argument: the environment" + sentence));
  };
  refused({{"RANK", "0"}, {"MOELANE_WORLD", "x"}}, "'s WORLD_SIZE is not set, allowed are 1 to 1024");
  refused({{"WORLD_SIZE", "2"}, {"MOELANE_WORLD", "x"}}, "'s RANK is not set, allowed are 0 to 1");
  refused({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "'s RANK is '2', allowed are 0 to 1");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "two"}}, "'s WORLD_SIZE is 'two', allowed");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2x"}}, "'s WORLD_SIZE is '2x', allowed");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "99999999999999999999"}}, "'s WORLD_SIZE is '999");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, " names no world");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}, " names no world");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "0"}},
          "'s MASTER_PORT is '0'");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}},
          "'s LOCAL_WORLD_SIZE is 2 of WORLD_SIZE 4");
}

}  // namespace
}  // namespace moelane::test
