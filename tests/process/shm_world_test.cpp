#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <optional>
#include <set>

#include "process/shm_help.hpp"

// The memory of worlds whose ranks are processes: who sees what, what is said when there is none, and what is
// left.
namespace moelane::test {
namespace {

using detail::Heaps;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::size_t kPage = 4096;

std::uint64_t& word(const Heaps& heaps, int rank, std::size_t index) {
  return reinterpret_cast<std::uint64_t*>(heaps.bases[static_cast<std::size_t>(rank)])[index];
}

// All ranks do the same; what each came to.
std::vector<std::string> all_do(int ranks, double timeout, const std::function<void(const World&)>& then) {
  const std::string name = fresh_name();
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) children.push_back(joining(name, rank, ranks, timeout, then));
  std::vector<std::string> outcomes;
  for (Child& child : children) outcomes.push_back(child.join());
  return outcomes;
}

// Every rank writes its number into every heap and sees everybody's in its own.
void share(World world, std::size_t committed, std::size_t bytes) {
  const Heaps heaps = world.impl().map_heaps(committed, bytes);
  ASSERT_EQ(heaps.bytes, bytes);
  ASSERT_EQ(heaps.bases.size(), static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) {
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(heaps.bases[static_cast<std::size_t>(r)]) % kPage, 0u);
    ASSERT_EQ(word(heaps, r, bytes / 8 - 1 - static_cast<std::size_t>(world.rank())), 0u);
  }
  world.barrier();
  for (int r = 0; r < world.size(); ++r) {
    const auto value = static_cast<std::uint64_t>(world.rank() * 100 + r + 1);
    word(heaps, r, bytes / 8 - 1 - static_cast<std::size_t>(world.rank())) = value;
  }
  world.barrier();
  for (int r = 0; r < world.size(); ++r) {
    const auto value = static_cast<std::uint64_t>(r * 100 + world.rank() + 1);
    ASSERT_EQ(word(heaps, world.rank(), bytes / 8 - 1 - static_cast<std::size_t>(r)), value);
  }
}

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

TEST(ShmWorld, SizesThatDisagreeAreNamedEverywhereAndTheWorldGoesOn) {
  const auto outcomes = all_do(3, 30, [](const World& given) {
    World world = given;
    const std::size_t bytes = world.rank() == 2 ? 2 * kPage : kPage;
    EXPECT_EQ(outcome_of([&] { world.impl().map_heaps(bytes, bytes); }),
              "mismatch: rank 2 asks for a heap of 8192 bytes, rank 0 for 4096");
    const std::string odd = outcome_of([&] { world.impl().map_heaps(0, world.rank() == 1 ? 4097 : kPage); });
    EXPECT_THAT(odd, StartsWith("argument: rank 1 asks for a heap of 4097 bytes"));
    const std::string huge = outcome_of([&] { world.impl().map_heaps(0, (std::size_t{1} << 46)); });
    EXPECT_THAT(huge, StartsWith("argument: rank 0 asks for a heap of 70368744177664 bytes"));
    share(world, kPage, kPage);
  });
  for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "");
}

TEST(ShmWorld, TooLittleMemoryIsAnErrorAndNoSignal) {
  const auto outcomes = all_do(3, 30, [](const World& given) {
    World world = given;
    const std::size_t bytes = std::size_t{1} << 44;
    EXPECT_THAT(outcome_of([&] { world.impl().map_heaps(bytes, bytes); }),
                AllOf(StartsWith("transport: 3 heaps need 52776558133248 bytes"), HasSubstr("are free")));
    share(world, kPage, bytes);  // as long as it is not asked for at once
  });
  for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "");
}

// The system call `number` fails with `error` from now on, in this process.
void let_fail(int number, int error) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{4, code};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

TEST(ShmWorld, WhatTheSystemRefusesOneRankAllHear) {
  const auto when = [](int rank, const std::function<void()>& trouble) {
    return all_do(3, 30, [=](const World& world) {
      if (world.rank() == rank) trouble();
      world.impl().map_heaps(kPage, std::size_t{64} << 20);
    });
  };
  for (const std::string& outcome : when(1, [] { let_fail(SYS_fallocate, ENOSPC); })) {
    EXPECT_EQ(outcome,
              "transport: rank 1 cannot reserve 4096 bytes of shared memory: No space left on device");
  }
  for (const std::string& outcome : when(2, [] { let_fail(SYS_mmap, ENOMEM); })) {
    EXPECT_EQ(outcome,
              "transport: rank 2 cannot map 201326592 bytes of shared memory: Cannot allocate memory");
  }
  for (const std::string& outcome : when(0, [] { let_fail(SYS_memfd_create, ENOSYS); })) {
    EXPECT_EQ(outcome,
              "transport: rank 0 cannot make 201326592 bytes of shared memory: Function not implemented");
  }
  const auto small_files = [] {
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  for (const std::string& outcome : when(0, small_files)) {
    EXPECT_EQ(outcome, "transport: rank 0 cannot make 201326592 bytes of shared memory: File too large");
  }
}

TEST(ShmWorld, ARankThatDiesBeforeItMapsIsNamedAtOnce) {
  for (const int dead : {0, 2}) {
    const Stopwatch watch;
    const std::string name = fresh_name();
    std::vector<Child> children;
    for (int rank = 0; rank < 4; ++rank) {
      children.push_back(joining(name, rank, 4, 30, [=](const World& world) {
        if (rank == dead) raise(SIGKILL);
        world.impl().map_heaps(kPage, kPage);
      }));
    }
    children[static_cast<std::size_t>(dead)].kill();  // only so that join() expects it
    const std::string sentence = "transport: rank " + std::to_string(dead) +
                                 " went away before all ranks could map the heaps of world '" + name + "'";
    for (int rank = 0; rank < 4; ++rank) {
      const std::string outcome = children[static_cast<std::size_t>(rank)].join();
      if (rank != dead) EXPECT_EQ(outcome, sentence);
    }
    EXPECT_LT(watch.seconds(), 3);
  }
}

TEST(ShmWorld, ARankThatDoesNotMapIsNamedAfterTheBound) {
  const std::string name = fresh_name();
  const auto map = [](const World& world) { world.impl().map_heaps(kPage, kPage); };
  Child zero = joining(name, 0, 3, 0.5, map), one = joining(name, 1, 3, 30, map);
  Child two = joining(name, 2, 3, 30, [](const World&) { pause_for(1.5); });
  const std::string sentence =
      "timeout: rank 0 waited 0.5 s for rank 2 of 3 to map the heaps of world '" + name + "'";
  EXPECT_EQ(zero.join(), sentence);
  EXPECT_EQ(one.join(), sentence);
  EXPECT_EQ(two.join(), "");
}

TEST(ShmWorld, AfterAFailureThatPartedTheRanksNothingHangs) {
  const auto outcomes = all_do(2, 0.4, [](const World& world) {
    if (world.rank() == 1) pause_for(0.8);
    const Stopwatch watch;
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(outcome_of([&] { world.impl().map_heaps(kPage, kPage); }),
                  AnyOf(StartsWith("timeout: rank 0 waited 0.4 s"), StartsWith("transport: rank 0 went away"),
                        HasSubstr("cannot map the heaps")));
    }
    EXPECT_LT(watch.seconds(), 1.5);
  });
  for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "");
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

// What this process holds of the system: open files, mapped memory, and names that others could see.
std::multiset<std::string> held() {
  std::multiset<std::string> things;
  DIR* const files = opendir("/proc/self/fd");
  while (const dirent* const entry = readdir(files)) things.insert(std::string("fd ") + entry->d_name);
  closedir(files);
  std::ifstream maps("/proc/self/maps"), names("/proc/net/unix");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != std::string::npos) things.insert(line);
  }
  for (std::string line; std::getline(names, line);) {
    if (line.find("@moelane/") != std::string::npos) things.insert(line);
  }
  return things;
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

}  // namespace
}  // namespace moelane::test
