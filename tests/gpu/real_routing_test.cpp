#include <gtest/gtest.h>

#include "support/paths.hpp"
#include "support/player.hpp"
#include "support/traces.hpp"

// What real routers chose, skewed as it is.
namespace moelane::test {
namespace {

class RealRouting : public OnPath {};
MOELANE_ON_EVERY_PATH(RealRouting);

TEST_P(RealRouting, OfEveryLayer) {
  const std::filesystem::path folder = traces();
  if (folder.empty()) GTEST_SKIP() << "no traces";
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "esft_deepseek_v2_lite")) {
    if (!entry.path().filename().string().starts_with("expert_weights_")) continue;
    Scene s = scene();
    s.ranks = 8;
    s.config.experts = 64;
    s.config.topk = 6;
    s.config.hidden = 64;
    s.config.max_tokens = 100;
    s.config.in_flight = 1;
    s.config.tp_size = files % 2 == 0 ? 1 : 2;
    s.routing = tools::open_routing(entry.path().string(), 64, 6, 1);
    s.tokens = [](int, int) { return 100; };
    if (s.config.layout == Layout::padded) s.capacity = [](int) { return 500; };
    EXPECT_EQ(run(s, 2), "") << entry.path();
    if (++files == 4) break;
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace moelane::test
