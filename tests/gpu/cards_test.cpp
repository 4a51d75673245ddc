#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "cuda/device.hpp"
#include "support/paths.hpp"
#include "support/player.hpp"

// Ranks on several cards, which write into each other's memory over NVLink or PCIe.
namespace moelane::test {
namespace {

class Cards : public OnPath {
 protected:
  void SetUp() override {
    MOELANE_SKIP_ON_CPU("they need no card");
    if (machine().cards < 2) GTEST_SKIP() << "there is one card: ranks on several were not tried";
    for (int card = 1; card < machine().cards; ++card) {
      if (!gpu::peer_access(0, card)) GTEST_SKIP() << "card 0 has no peer access to card " << card;
    }
  }
};
MOELANE_ON_EVERY_PATH(Cards);

// All tests of this program put rank r on card r % cards; here that is made sure of.
TEST_P(Cards, EveryRankOnItsOwn) {
  Scene s = scene();
  s.ranks = 2 * machine().cards;
  s.config.tp_size = 2;
  s.config.scale_columns = 3;
  s.config.dtype = DType::fp8_e4m3;
  s.reserve();
  std::mutex mutex;
  std::set<int> used;
  const auto part = [&](World world) {
    {
      const std::lock_guard lock(mutex);
      used.insert(card_of(world.rank()));
    }
    perform(std::move(world), s, 20);
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 30, part)), "");
  EXPECT_EQ(used.size(), static_cast<std::size_t>(machine().cards));
}

TEST_P(Cards, Matrix) {
  for (const DType dtype : {DType::fp8_e4m3, DType::bf16, DType::fp16, DType::fp32}) {
    for (const int tp : {1, 2, 4}) {
      Scene s = scene();
      s.ranks = 8;
      s.config.dtype = dtype;
      s.config.tp_size = tp;
      s.config.out_dtype = DType::fp32;
      s.accumulate = true;
      s.strides = tp == 2 ? Strides::odd : Strides::dense;
      EXPECT_EQ(run(s, 6), "") << name_of(dtype) << ", tp " << tp;
    }
  }
}

}  // namespace
}  // namespace moelane::test
