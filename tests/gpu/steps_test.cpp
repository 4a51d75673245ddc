#include <gtest/gtest.h>

#include "support/paths.hpp"
#include "support/player.hpp"

// Many steps, large steps and large worlds. What the protocol tests play on GPU ranks too is not played
// again.
namespace moelane::test {
namespace {

class Steps : public OnPath {};
MOELANE_ON_EVERY_PATH(Steps);

TEST_P(Steps, TwoHundredOnOneEngine) {
  Scene s = scene();
  s.config.tp_size = 2;
  s.config.scale_columns = 3;
  s.config.dtype = DType::fp8_e4m3;
  s.all_steps = true;
  EXPECT_EQ(run(s, 200), "");
}

// A block has several batches of tokens, of rows, and of answers.
TEST_P(Steps, MoreTokensThanBlocks) {
  for (const int blocks : {1, 2, 5}) {
    Scene s = scene();
    s.config.num_sms = blocks;
    s.config.hidden = 24;
    s.config.topk = 8;
    s.config.experts = 64;
    s.config.max_tokens = 300;
    s.config.tp_size = blocks == 2 ? 2 : 1;
    s.config.in_flight = 1;
    s.habits.hot = 0;
    s.tokens = [](int step, int group) { return step == group ? 300 : 299 - 90 * group; };
    if (s.config.layout == Layout::padded) s.capacity = [](int) { return 200; };
    EXPECT_EQ(run(s, 2), "") << blocks << " blocks";
  }
}

// Alone, so that tools which do not let kernels run side by side can look on.
TEST_P(Steps, OneRank) {
  Scene s = scene();
  s.ranks = 1;
  s.config.scale_columns = 1;
  s.accumulate = true;
  EXPECT_EQ(run(s, 6), "");
}

TEST_P(Steps, TwoToSixteenRanks) {
  for (const int ranks : {2, 3, 6, 11, 16}) {
    Scene s = scene();
    s.ranks = ranks;
    s.config.experts = 13;  // fewer than ranks in the end
    s.config.in_flight = 1;
    s.config.tp_size = ranks % 4 == 0 ? 4 : ranks % 2 == 0 ? 2 : 1;
    s.seed = static_cast<std::uint64_t>(ranks);
    EXPECT_EQ(run(s, 4), "") << ranks << " ranks";
  }
}

TEST_P(Steps, NoTokenOneTokenAndAllTokens) {
  Scene s = scene();
  s.tokens = [](int step, int group) {
    constexpr int kNumbers[] = {0, 1, 6};
    return step < 3 ? kNumbers[step] : kNumbers[(step + group) % 3];
  };
  EXPECT_EQ(run(s, 9), "");
}

// Counters that fit into a block's shared memory as it is, that want it enlarged, and that do not fit.
TEST_P(Steps, ManyExperts) {
  for (const int experts : {500, 8000, 40000}) {
    Scene s = scene();
    s.ranks = 3;
    s.config.experts = experts;
    s.config.hidden = 5;
    s.config.in_flight = 1;
    s.habits.hot = 0.4;
    s.habits.hot_expert = experts - 1;
    s.capacity = [&](int) { return s.config.layout == Layout::padded ? 3 : 40; };
    EXPECT_EQ(run(s, 3), "") << experts;
  }
}

TEST_P(Steps, ThirtyTwoExpertsOfAToken) {
  for (const int experts : {3, 40}) {  // 3: a token names each about ten times
    Scene s = scene();
    s.config.topk = 32;
    s.config.experts = experts;
    s.config.max_tokens = 40;  // more than a batch of 1024 entries
    s.config.num_sms = 1;
    EXPECT_EQ(run(s, 3), "") << experts;
  }
}

// A model's shape, with rows by 16 bytes and packed scales.
TEST_P(Steps, ReferenceShape) {
  const Calls calls = std::get<Path>(GetParam()).calls;
  if (calls == Calls::mixed && !std::get<Path>(GetParam()).partial_sums) {
    GTEST_SKIP() << "its kernels are those of the other paths";
  }
  Scene s = scene();
  s.ranks = 8;
  s.config.experts = 256;
  s.config.topk = 8;
  s.config.hidden = 7168;
  s.config.dtype = DType::fp8_e4m3;
  s.config.scale_columns = 56;
  s.config.max_tokens = 32;
  s.config.in_flight = 1;
  if (s.config.layout == Layout::contiguous) s.config.alignment = 16;
  s.habits = {0.02, 0.02, 0, 0, false};
  s.tokens = [](int, int group) { return 32 - group; };
  const int rows = s.config.layout == Layout::padded ? 24 : s.config.layout == Layout::ranked ? 256 : 1024;
  s.capacity = [=](int) { return rows; };
  EXPECT_EQ(run(s, 2), "");
}

}  // namespace
}  // namespace moelane::test
