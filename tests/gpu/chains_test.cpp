#include <gtest/gtest.h>

#include "cuda/device.hpp"
#include "gpu/chain.hpp"
#include "support/paths.hpp"

// Steps that follow each other on the card with nobody waiting between them: as calls, as graphs, on lanes
// side by side and on engines side by side. CPU ranks say what must come out, byte for byte.
namespace moelane::test {
namespace {

class Queued : public OnPath {};
MOELANE_ON_EVERY_PATH(Queued);

constexpr int kSteps = 5 * Chain::kRoutings;

void step_by_step(std::vector<Chain>& chains) {
  for (int step = 0; step < kSteps; ++step) {
    for (Chain& chain : chains) chain.play(step);
  }
}

// One half of this chain, one half of that.
void by_halves(std::vector<Chain>& chains) {
  for (int step = 0; step < kSteps; ++step) {
    for (int part = 0; part < Chain::kParts; ++part) {
      for (Chain& chain : chains) chain.play(step, part);
    }
  }
}

TEST_P(Queued, StepsOfOneLane) {
  for (const int tp : {1, 2}) {
    Scene s = scene();
    s.config.tp_size = tp;
    EXPECT_EQ(chained(usual_processor(), s, 1, 1, step_by_step),
              chained(Processor::cpu, s, 1, 1, step_by_step));
  }
}

TEST_P(Queued, TwoLanesInterleaved) {
  EXPECT_EQ(chained(usual_processor(), scene(), 1, 2, by_halves),
            chained(Processor::cpu, scene(), 1, 2, by_halves));
}

TEST_P(Queued, TwoEnginesSideBySide) {
  EXPECT_EQ(chained(usual_processor(), scene(), 2, 1, by_halves),
            chained(Processor::cpu, scene(), 2, 1, by_halves));
}

TEST_P(Queued, GraphsOfManySteps) {
  MOELANE_SKIP_ON_CPU("graphs are CUDA's");
  const auto replayed = [](std::vector<Chain>& chains) {
    std::vector<gpu::Graph> graphs;
    for (Chain& chain : chains) {
      graphs.push_back(gpu::Graph::capture(chain.stream(), [&] {
        for (int step = 0; step < Chain::kRoutings; ++step) chain.play(step);
      }));
    }
    chains.front().meet();
    for (int step = 0; step < kSteps; step += Chain::kRoutings) {
      for (std::size_t i = 0; i < chains.size(); ++i) graphs[i].launch(chains[i].stream());
    }
  };
  // Calls of step n of the graph are those of step n % kRoutings.
  const auto called = [](std::vector<Chain>& chains) {
    for (int step = 0; step < kSteps; ++step) {
      for (Chain& chain : chains) chain.play(step % Chain::kRoutings);
    }
  };
  EXPECT_EQ(chained(Processor::gpu, scene(), 1, 2, replayed), chained(Processor::cpu, scene(), 1, 2, called));
}

// So that the tests above cannot pass by comparing nothing.
TEST(QueuedSteps, LeaveOtherBytesEachTime) {
  const Scene s = scene_on(paths().front(), Layout::padded);
  const auto steps = [&](int count) {
    return chained(Processor::cpu, s, 1, 1, [=](std::vector<Chain>& chains) {
      for (int step = 0; step < count; ++step) chains.front().play(step);
    });
  };
  const auto some = steps(kSteps), more = steps(kSteps + Chain::kRoutings), none = steps(0);
  for (std::size_t rank = 0; rank < some.size(); ++rank) EXPECT_NE(some[rank], none[rank]) << rank;
  EXPECT_NE(some[0], more[0]);
}

}  // namespace
}  // namespace moelane::test
