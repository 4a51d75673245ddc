#include <gtest/gtest.h>

#include "support/paths.hpp"
#include "support/player.hpp"

// Sizes, strides and addresses that are not round.
namespace moelane::test {
namespace {

class Shapes : public OnPath {};
MOELANE_ON_EVERY_PATH(Shapes);

TEST_P(Shapes, HiddenSizes) {
  for (const int hidden : {1, 2, 7, 16, 33, 64, 100, 129}) {
    Scene s = scene();
    s.config.hidden = hidden;
    s.config.dtype = hidden % 2 == 0 ? DType::fp8_e4m3 : DType::fp16;
    s.config.scale_columns = hidden == 100 ? 3 : 1;
    s.seed = static_cast<std::uint64_t>(hidden);
    EXPECT_EQ(run(s, 8), "") << hidden;
  }
}

// Rows as large as a model's go other ways: past the caches, and in large copies.
TEST_P(Shapes, LargeRows) {
  Scene s = scene();
  s.config.hidden = 7168;
  s.config.experts = 4;
  s.config.max_tokens = 3;
  s.config.dtype = DType::fp8_e4m3;
  s.config.scale_columns = 56;
  EXPECT_EQ(run(s, 3), "");
  s.config.max_tokens = 10;
  s.config.dtype = DType::fp32;
  s.strides = Strides::odd;
  s.tokens = [](int, int) { return 10; };
  s.habits.hot = 0;
  const int rows = s.config.layout == Layout::ranked ? 40 : s.config.layout == Layout::padded ? 64 : 160;
  s.capacity = [=](int) { return rows; };
  EXPECT_EQ(run(s, 2), "");
}

TEST_P(Shapes, ExpertsOfAToken) {
  for (const int topk : {1, 2, 31, 32}) {
    Scene s = scene();
    s.config.topk = topk;
    s.config.max_tokens = 4;
    s.seed = static_cast<std::uint64_t>(topk);
    EXPECT_EQ(run(s, 10), "") << "topk " << topk;
    s.config.experts = 100;  // more experts and ranks than a token can choose
    s.ranks = 9;
    EXPECT_EQ(run(s, 4), "") << "topk " << topk << " of 100";
  }
}

TEST_P(Shapes, StridesAndAddresses) {
  for (const Strides strides : {Strides::dense, Strides::odd, Strides::crossed}) {
    for (const Strides scales : {Strides::dense, Strides::odd, Strides::crossed}) {
      for (const int scale_bytes : {1, 2, 4, 8}) {
        Scene s = scene();
        s.ranks = 3;
        s.strides = strides;
        s.scale_strides = scales;
        s.config.scale_bytes = scale_bytes;
        s.config.scale_columns = scale_bytes == 8 ? 1 : 5;
        s.config.dtype = scale_bytes == 2 ? DType::fp8_e4m3 : DType::bf16;
        s.wide_ids = scale_bytes > 2;
        s.num_tokens = scale_bytes == 1;
        s.accumulate = scale_bytes == 4;
        s.seed = static_cast<std::uint64_t>(scale_bytes);
        EXPECT_EQ(run(s, 6), "") << static_cast<int>(strides) << static_cast<int>(scales) << " "
                                 << scale_bytes;
      }
    }
  }
}

TEST(Alignment, OfTheContiguousLayout) {
  for (const Path& path : paths()) {
    for (const int alignment : {2, 16, 128}) {
      for (const int tp : {1, 2}) {
        Scene s = scene_on(path, Layout::contiguous);
        s.config.alignment = alignment;
        s.config.tp_size = tp;
        s.config.experts = 7;
        s.habits.hot = 0.5;
        EXPECT_EQ(run(s, 12), "") << path.name << ", " << alignment;
      }
    }
  }
}

TEST_P(Shapes, ManyTokens) {
  Scene s = scene();
  s.config.hidden = 8;
  s.config.max_tokens = 200;
  s.config.topk = 8;
  s.config.tp_size = 2;
  s.config.experts = 64;
  s.tokens = [](int step, int group) { return step == group ? 200 : 187 + step; };
  EXPECT_EQ(run(s, 3), "");
}

}  // namespace
}  // namespace moelane::test
