#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>

#include "process/shm_help.hpp"

// What all ranks hear when one cannot map its heap.
namespace moelane::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ShmHeaps, SizesThatDisagreeAreNamedEverywhereAndTheWorldGoesOn) {
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

TEST(ShmHeaps, TooLittleMemoryIsAnErrorAndNoSignal) {
  const auto outcomes = all_do(3, 30, [](const World& given) {
    World world = given;
    const std::size_t bytes = std::size_t{1} << 42;
    EXPECT_THAT(outcome_of([&] { world.impl().map_heaps(bytes, bytes); }),
                AllOf(StartsWith("transport: 3 heaps need 13194139533312 bytes"), HasSubstr("are free")));
    share(world, kPage, std::size_t{1} << 30);  // more than is reserved at once
  });
  for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "");
}

// The system call `number` fails with `error` from now on, in this process; if `flags` are given, only with
// these as its fourth argument.
void let_fail(long number, int error, int flags = -1) {
  constexpr std::uint32_t kFlags = offsetof(seccomp_data, args) + 3 * sizeof(std::uint64_t);
  const std::uint8_t no = flags == -1 ? 0 : 1;  // without flags, "no" leads where "yes" does
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFlags),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(flags), 0, no),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{6, code};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

TEST(ShmHeaps, WhatTheSystemRefusesOneRankAllHear) {
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
  for (const std::string& outcome : when(2, [] { let_fail(SYS_mmap, ENOMEM, MAP_SHARED | MAP_NORESERVE); })) {
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

TEST(ShmHeaps, ARankThatDiesBeforeItMapsIsNamedAtOnce) {
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
    children[static_cast<std::size_t>(dead)].expect_killed();
    const std::string sentence = "transport: rank " + std::to_string(dead) +
                                 " went away before all ranks could map the heaps of world '" + name + "'";
    for (int rank = 0; rank < 4; ++rank) {
      const std::string outcome = children[static_cast<std::size_t>(rank)].join();
      EXPECT_EQ(outcome, rank == dead ? "" : sentence);
    }
    EXPECT_LT(watch.seconds(), 3);
  }
}

TEST(ShmHeaps, ARankThatDoesNotMapIsNamedAfterTheBound) {
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

TEST(ShmHeaps, AfterAFailureThatPartedTheRanksNothingHangs) {
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

}  // namespace
}  // namespace moelane::test
