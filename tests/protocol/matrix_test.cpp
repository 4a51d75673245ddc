#include <gtest/gtest.h>

#include "support/paths.hpp"
#include "support/player.hpp"

// Every element type, world and group size on every path: exact bytes, order and bits, many steps on one
// engine.
namespace moelane::test {
namespace {

class Matrix : public OnPath {};
MOELANE_ON_EVERY_PATH(Matrix);

TEST_P(Matrix, ElementTypes) {
  int n = 0;
  for (const DType dtype : {DType::fp8_e4m3, DType::bf16, DType::fp16, DType::fp32}) {
    for (const DType answer : {DType::bf16, DType::fp16, DType::fp32}) {
      for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
        Scene s = scene();
        s.config.dtype = dtype;
        s.config.combine_dtype = answer;
        s.config.out_dtype = out;
        s.special_values = n % 2 == 1;
        s.accumulate = n % 3 == 1;
        s.config.scale_columns = n % 4 == 3 ? 0 : 1 + n % 5;
        s.config.scale_bytes = n % 4 == 2 ? 1 << n % 3 : 4;
        s.seed = static_cast<std::uint64_t>(++n);
        EXPECT_EQ(run(s, 4), "") << name_of(dtype) << " " << name_of(answer) << " " << name_of(out);
      }
    }
  }
}

TEST_P(Matrix, Worlds) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int tp : {1, 2, 4}) {
      if (ranks % tp != 0) continue;
      Scene s = scene();
      s.ranks = ranks;
      s.config.tp_size = tp;
      s.config.experts = ranks == 7 ? 5 : 13;  // also fewer experts than ranks
      s.config.scale_columns = 2;
      s.seed = static_cast<std::uint64_t>(100 * ranks + tp);
      EXPECT_EQ(run(s, 12), "") << ranks << " ranks, tp " << tp;
    }
  }
}

// More ranks in a group, and more ranks that a token goes to, than one copy takes at a time.
TEST(LargeWorlds, OfOneGroupAndOfMany) {
  MOELANE_SKIP_ON_GPU("more ranks than a card has queues for streams");
  for (const Path& path : paths()) {
    Scene s = scene_on(path, Layout::padded);
    s.ranks = s.config.tp_size = 35;
    s.config.experts = 40;
    s.config.max_tokens = 40;
    s.habits.hot = 0;
    s.capacity = [](int) { return 30; };
    EXPECT_EQ(run(s, 3), "") << path.name << ", a group of 35";
    s.config.tp_size = 1;
    s.config.topk = 32;
    s.config.max_tokens = 2;
    EXPECT_EQ(run(s, 3), "") << path.name << ", 35 groups";
  }
}

// Slots, signals and counters have to be right the fiftieth time too.
TEST_P(Matrix, ManySteps) {
  for (const int lanes : {1, 2, 3}) {
    Scene s = scene();
    s.config.in_flight = lanes;
    s.config.tp_size = lanes == 2 ? 2 : 1;
    s.accumulate = lanes == 3;
    s.seed = static_cast<std::uint64_t>(lanes);
    EXPECT_EQ(run(s, 60), "") << lanes << " lanes";
  }
}

}  // namespace
}  // namespace moelane::test
