#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "cuda/device.hpp"
#include "support/paths.hpp"

// World::barrier(Stream): a kernel that ends when every rank's has begun.
namespace moelane::test {
namespace {

constexpr int kRanks = 5, kRounds = 60;

class StreamBarrier : public testing::Test {
 protected:
  void SetUp() override { MOELANE_SKIP_ON_CPU("theirs is barrier()"); }
};

// A rank says on the host that it is about to come; whoever has passed must find that all had said so.
TEST_F(StreamBarrier, EndsWhenAllHaveBegun) {
  for (const bool graphs : {false, true}) {
    std::array<std::atomic<int>, kRounds> coming{};
    const auto part = [&](World world) {
      const auto stream = borrow_stream(card_of(world.rank()));
      gpu::Graph graph;
      if (graphs) graph = gpu::Graph::capture(*stream, [&] { world.barrier(*stream); });
      world.barrier();  // to make a graph waits for the card
      for (std::size_t round = 0; round < kRounds; ++round) {
        if (static_cast<int>(round) % kRanks == world.rank()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        ++coming[round];
        graphs ? graph.launch(*stream) : world.barrier(*stream);
        stream->synchronize();
        require(coming[round] == kRanks,
                "only " + std::to_string(coming[round]) + " had come to round " + std::to_string(round));
      }
    };
    EXPECT_EQ(complaints(play(Home::threads, kRanks, 20, part)), "") << (graphs ? "graphs" : "calls");
  }
}

TEST_F(StreamBarrier, QueuesUpWithoutTheHost) {
  const auto part = [](World world) {
    const auto stream = borrow_stream(card_of(world.rank()));
    for (int round = 0; round < kRounds; ++round) world.barrier(*stream);
    stream->synchronize();
  };
  EXPECT_EQ(complaints(play(Home::threads, kRanks, 2, part)), "");
}

TEST_F(StreamBarrier, EndsWithTheWorldsBound) {
  const auto part = [](World world) {
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      return world.barrier();  // of the host
    }
    const auto stream = borrow_stream(card_of(world.rank()));
    const auto begin = std::chrono::steady_clock::now();
    world.barrier(*stream);
    stream->synchronize();
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    world.barrier();
    require(took > 1.4 && took < 4, "it took " + std::to_string(took) + " s");
  };
  EXPECT_EQ(complaints(play(Home::threads, 2, 1.5, part)), "");
}

TEST(NoStreamBarrier, OfCpuRanks) {
  const auto part = [](World world) {
    require_words(refusal(ErrorKind::argument, [&] { world.barrier(Stream{}); }),
                  {"barrier(stream) is for ranks on GPUs, allowed with transport threads is barrier()"});
  };
  EXPECT_EQ(complaints(play(Home::threads, 1, 20, part, Processor::cpu)), "");
}

}  // namespace
}  // namespace moelane::test
