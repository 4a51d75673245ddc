#include <dirent.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "process/shm_help.hpp"

// Worlds whose ranks are processes: they share memory, live beside each other, and leave nothing.
namespace moelane::test {
namespace {

using detail::Heaps;
using testing::StartsWith;

TEST(ShmWorld, RanksSeeEachOthersHeaps) {
  for (const int ranks : {1, 2, 7, 16}) {
    for (const std::string& outcome : all_do(ranks, 30, [](const World& world) {
           share(world, 0, kPage);
           share(world, kPage, 3 * kPage);
           share(world, std::size_t{9} << 20, std::size_t{20} << 20);
         })) {
      EXPECT_EQ(outcome, "");
    }
  }
}

TEST(ShmWorld, ManySlowSignalsDoNotDisturb) {
  // Profilers send such; every system call is interrupted again and again.
  for (const std::string& outcome : all_do(3, 30, [](const World& world) {
         struct sigaction action {};
         action.sa_handler = [](int) {};
         sigaction(SIGALRM, &action, nullptr);
         const itimerval often{{0, 700}, {0, 700}};
         setitimer(ITIMER_REAL, &often, nullptr);
         for (int i = 0; i < 5; ++i) share(world, std::size_t{24} << 20, std::size_t{24} << 20);
       })) {
    EXPECT_EQ(outcome, "");
  }
}

TEST(ShmWorld, ExchangesCarryAnySize) {
  for (const std::string& outcome : all_do(5, 30, [](const World& given) {
         World world = given;
         for (const std::size_t bytes : {0u, 1u, 1023u, 1024u, 1025u, 100'000u}) {
           const std::string mine(bytes, static_cast<char>('a' + world.rank()));
           std::string all(bytes * 5, '?'), expected;
           world.all_gather(mine.data(), bytes, all.data());
           for (int r = 0; r < 5; ++r) expected += std::string(bytes, static_cast<char>('a' + r));
           EXPECT_EQ(all, expected);
         }
       })) {
    EXPECT_EQ(outcome, "");
  }
}

TEST(ShmWorld, MemoryLivesUntilTheLastRankLetsGo) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 2, 30, [](const World& given) {
    World world = given;
    const Heaps heaps = world.impl().map_heaps(kPage, kPage);
    word(heaps, 0, 0) = 4711;
    world.barrier();
  });
  Child one = joining(name, 1, 2, 30, [](const World& given) {
    std::optional<World> world = given;
    const Heaps heaps = world->impl().map_heaps(kPage, kPage);
    world->barrier();
    world.reset();
    pause_for(0.3);
    EXPECT_EQ(word(heaps, 0, 0), 4711u);
    word(heaps, 0, 1) = 1;
  });
  EXPECT_EQ(zero.join(), "");
  EXPECT_EQ(one.join(), "");
}

// What this process holds of the system: open files and shared memory.
std::multiset<std::string> held() {
  std::multiset<std::string> things;
  DIR* const files = opendir("/proc/self/fd");
  while (const dirent* const entry = readdir(files)) things.insert(std::string("fd ") + entry->d_name);
  closedir(files);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != std::string::npos) things.insert(line);
  }
  return things;
}

// Whether any socket of the machine has the world's name.
bool is_known(const std::string& name) {
  std::ifstream names("/proc/net/unix");
  const std::string all(std::istreambuf_iterator<char>(names), {});
  return all.find(name) != std::string::npos;
}

TEST(ShmWorld, NothingIsLeft) {
  const std::string name = fresh_name();
  const auto play = [&](int rank) {
    return Child([=] {
      const auto before = held();
      for (int i = 0; i < 20; ++i) {  // one after the other, with the same name
        World world = World::shm(name, rank, 3, 30);
        share(world, kPage, 5 * kPage);
        EXPECT_NE(held(), before);
        EXPECT_TRUE(is_known(name));
        outcome_of([&] { world.impl().map_heaps(0, rank == 1 ? kPage : 2 * kPage); });
      }
      outcome_of([&] { World::shm(name + " alone", rank, 3, 0.02); });
      EXPECT_EQ(held(), before);
      EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
      EXPECT_EQ(errno, ECHILD);
      return std::string();
    });
  };
  Child zero = play(0), one = play(1), two = play(2);
  for (Child* child : {&zero, &one, &two}) child->join();
  EXPECT_FALSE(is_known(name));
}

TEST(ShmWorld, AProcessMayBelongToSeveral) {
  const std::string name = fresh_name();
  const auto play = [&](int process) {
    return Child([=] {
      World all = World::shm(name, process, 4, 30);
      World half = World::shm(name + (process % 2 == 0 ? " even" : " odd"), process / 2, 2,
                              30);                    // every other process
      World twin = World::shm(name, process, 4, 30);  // the same name again, while the first lives
      for (int i = 0; i < 20; ++i) {
        std::array<int, 4> four{};
        std::array<int, 2> two{};
        const int mine = process + 10 * i;
        half.all_gather(&mine, sizeof mine, two.data());
        EXPECT_EQ(two[0] + two[1], 2 * (process % 2) + 2 + 20 * i);
        all.all_gather(&mine, sizeof mine, four.data());
        EXPECT_EQ(four[3], 3 + 10 * i);
        twin.barrier();
      }
      share(half, kPage, kPage);
      share(all, kPage, kPage);
      share(twin, kPage, 2 * kPage);
      return std::string();
    });
  };
  std::vector<Child> children;
  for (int process = 0; process < 4; ++process) children.push_back(play(process));
  for (Child& child : children) child.join();
}

TEST(ShmWorld, TheEnvironmentNamesTheWorld) {
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
