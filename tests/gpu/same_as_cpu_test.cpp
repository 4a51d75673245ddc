#include <gtest/gtest.h>

#include <algorithm>

#include "support/paths.hpp"
#include "support/player.hpp"

// The same scene on CPU ranks and on GPU ranks: every byte of every output, guards and gaps among them, is
// the same.
namespace moelane::test {
namespace {

class SameAsCpu : public OnPath {};
MOELANE_ON_EVERY_PATH(SameAsCpu);

// By rank: the outputs of all steps, one after the other.
using Bytes = std::vector<std::vector<std::byte>>;

Bytes played(Processor processor, const Scene& scene, int steps) {
  Bytes all(static_cast<std::size_t>(scene.ranks));
  const auto part = [&](World world) {
    auto& mine = all[static_cast<std::size_t>(world.rank())];
    Engine engine(std::move(world), scene.config, Placement::table(scene.table(0), scene.ranks));
    Player player(engine, scene, 0);
    for (int step = 0; step < steps; ++step) {
      player.play(step);
      const std::vector<std::byte> bytes = player.bytes();
      mine.insert(mine.end(), bytes.begin(), bytes.end());
    }
  };
  EXPECT_EQ(complaints(play(Home::threads, scene.ranks, 30, part, processor)), "");
  return all;
}

void expect_same(Scene scene, const std::string& what) {
  scene.reserve();
  const Bytes cpu = played(Processor::cpu, scene, 2), other = played(usual_processor(), scene, 2);
  for (std::size_t rank = 0; rank < cpu.size(); ++rank) {
    ASSERT_EQ(cpu[rank].size(), other[rank].size()) << what << ", rank " << rank;
    ASSERT_FALSE(cpu[rank].empty());
    const auto [at, there] = std::mismatch(cpu[rank].begin(), cpu[rank].end(), other[rank].begin());
    EXPECT_TRUE(at == cpu[rank].end())
        << what << ", rank " << rank << ": byte " << at - cpu[rank].begin() << " is "
        << static_cast<int>(*there) << " instead of " << static_cast<int>(*at);
  }
}

TEST_P(SameAsCpu, EveryElementType) {
  constexpr DType kAnswers[] = {DType::bf16, DType::fp16, DType::fp32};
  std::size_t n = 0;
  for (const DType dtype : {DType::fp8_e4m3, DType::bf16, DType::fp16, DType::fp32}) {
    for (const DType out : kAnswers) {
      Scene s = scene();
      s.config.dtype = dtype;
      s.config.combine_dtype = kAnswers[n % 3];
      s.config.out_dtype = out;
      s.config.hidden = n % 2 == 0 ? 33 : 48;  // element by element, and by 16 bytes
      s.config.tp_size = n % 4 == 3 ? 2 : 1;
      s.special_values = true;
      s.accumulate = n % 2 == 1;
      s.config.scale_columns = 3;
      s.seed = ++n;
      expect_same(s, std::string(name_of(dtype)) + " to " + std::string(name_of(out)));
    }
    ++n;  // so that every answer meets every output
  }
}

TEST_P(SameAsCpu, TooLittleRoom) {
  Scene s = scene();
  s.capacity = [](int) { return 5; };
  s.accumulate = true;
  s.strides = s.scale_strides = Strides::crossed;
  s.config.scale_columns = 2;
  expect_same(s, "capacity 5");
}

}  // namespace
}  // namespace moelane::test
