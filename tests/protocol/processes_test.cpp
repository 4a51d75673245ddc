#include <gtest/gtest.h>

#include "support/paths.hpp"
#include "support/player.hpp"

// The scenes of the other tests with a process for each rank.
namespace moelane::test {
namespace {

class Processes : public OnPath {
 protected:
  void SetUp() override {
    const bool one_of_many = std::get<Layout>(GetParam()) != Layout::padded;
    if (one_of_many)
      MOELANE_SKIP_ON_GPU("a process takes long to find its card, and each layout has the same heaps");
  }
};
MOELANE_ON_EVERY_PATH(Processes);

TEST_P(Processes, ManySteps) {
  Scene s = scene();
  s.ranks = 6;
  s.config.tp_size = 2;
  s.config.scale_columns = 3;
  s.config.in_flight = 3;
  s.nap = 0.0005;
  s.tables = {{0, 0, 5, 0, 3, 3, 2, 1, 1, 4, 4, 0, 0, 0, 5, 5},
              {5, 5, 5, 5, 5, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3}};
  EXPECT_EQ(run(s, 50, Home::processes), "");
}

TEST_P(Processes, TooLittleRoom) {
  Scene s = scene();
  s.capacity = [](int) { return 5; };
  s.accumulate = true;
  EXPECT_EQ(run(s, 20, Home::processes), "");
}

TEST(ProcessesOfAModel, LargeRows) {
  for (const Path& path : paths()) {
    Scene s = scene_on(path, Layout::padded);
    s.config.hidden = 7168;
    s.config.dtype = DType::fp8_e4m3;
    s.config.scale_columns = 56;
    s.config.experts = 5;
    s.config.max_tokens = 8;
    s.tokens = [](int, int group) { return 8 - group; };
    EXPECT_EQ(run(s, 3, Home::processes), "") << path.name;
  }
}

}  // namespace
}  // namespace moelane::test
