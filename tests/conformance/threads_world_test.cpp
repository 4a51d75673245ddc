#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "moelane/error.hpp"
#include "moelane/world.hpp"
#include "transport/world_impl.hpp"

// The host side of the ranks that are threads.
namespace moelane::conformance {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// What every rank's part came to: "" or the sentence of its error.
std::vector<std::string> all_do(int ranks, double timeout, const std::function<void(World&)>& part) {
  std::vector<World> worlds = World::threads(ranks, timeout);
  std::vector<std::string> outcomes(worlds.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < worlds.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        part(worlds[r]);
      } catch (const Error& error) {
        outcomes[r] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST(ThreadsWorld, SizesThatDisagreeAreNamedEverywhereAndTheWorldGoesOn) {
  const auto outcomes = all_do(3, 30, [](World& world) {
    bool refused = false;
    try {
      world.impl().map_heaps(4096, world.rank() == 2 ? 8192 : 4096);
    } catch (const Error& error) {
      refused = true;
      EXPECT_EQ(error.kind(), ErrorKind::mismatch);
      EXPECT_THAT(error.what(), HasSubstr("8192"));
      EXPECT_THAT(error.what(), HasSubstr("4096"));
    }
    EXPECT_TRUE(refused);
    EXPECT_EQ(world.impl().map_heaps(4096, 8192).bytes, 8192u);
    world.barrier();
  });
  for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "");
}

TEST(ThreadsWorld, ASizeThatIsNoNumberOfPagesIsRefused) {
  for (const std::string& outcome : all_do(2, 30, [](World& world) { world.impl().map_heaps(0, 4097); })) {
    EXPECT_THAT(outcome, HasSubstr("asks for a heap of 4097 bytes; allowed are multiples of 4096"));
  }
}

TEST(ThreadsWorld, TimeOutsNameWhoIsMissing) {
  const auto outcomes = all_do(4, 0.2, [](World& world) {
    if (world.rank() % 2 == 0) world.impl().map_heaps(4096, 4096);
  });
  EXPECT_THAT(outcomes[0], HasSubstr("for ranks 1, 3 of 4 to map heaps"));
  EXPECT_EQ(outcomes[2], outcomes[0]);
}

TEST(ThreadsWorld, WhoComesAfterATimeOutHearsOfIt) {
  const auto outcomes = all_do(2, 0.2, [](World& world) {
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    world.impl().map_heaps(4096, 4096);
  });
  EXPECT_THAT(outcomes[0], StartsWith("rank 0 waited"));
  EXPECT_EQ(outcomes[1], outcomes[0]);
}

}  // namespace
}  // namespace moelane::conformance
