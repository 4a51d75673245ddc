#include <gtest/gtest.h>

#include "support/paths.hpp"
#include "support/player.hpp"

// Calls that are captured in CUDA graphs once and replayed, with other tokens, numbers of tokens and routing
// in the same buffers; every result is compared.
namespace moelane::test {
namespace {

class Graphs : public OnPath {
 protected:
  // The engine counts on the calls of a lane in order, so that a step's graphs all come from one kind of
  // call.
  static Scene replayed() {
    Scene s = scene();
    if (s.calls == Calls::mixed) s.calls = Calls::split;
    s.graphs = s.num_tokens = s.all_steps = true;
    s.config.scale_columns = 2;
    return s;
  }
};
MOELANE_ON_EVERY_PATH(Graphs);

TEST_P(Graphs, ReplayThreeHundredTimes) { EXPECT_EQ(run(replayed(), 300), ""); }

TEST_P(Graphs, ReplayInGroupsWithOtherTables) {
  Scene s = replayed();
  s.config.tp_size = 2;
  s.config.experts = 8;
  s.wide_ids = s.accumulate = true;
  s.strides = s.scale_strides = Strides::odd;
  s.tables = {{0, 0, 1, 1, 2, 2, 3, 3}, {3, 3, 3, 0, 0, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1}};
  EXPECT_EQ(run(s, 40), "");
}

// Errors come out of replays as of calls, with the replay's own step.
TEST_P(Graphs, ReplaysThatOverflow) {
  Scene s = replayed();
  s.capacity = [](int) { return 5; };
  EXPECT_EQ(run(s, 40), "");
}

}  // namespace
}  // namespace moelane::test
