#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "moelane/engine.hpp"
#include "support/paths.hpp"

// What Config says of memory is what is mapped, to the byte, and little.
namespace moelane::test {
namespace {

Config reference_shape() {
  Config config;
  config.experts = 256;
  config.topk = 8;
  config.hidden = 7168;
  config.max_tokens = 128;
  config.dtype = DType::fp8_e4m3;
  config.scale_columns = 56;
  return config;
}

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(Heap, OfTheReferenceShape) {
  const Config config = reference_shape();
  const std::size_t bytes = config.heap_bytes(8);
  std::printf("reference shape, 8 ranks, 2 lanes: %zu bytes, %.2f MiB a rank\n", bytes,
              static_cast<double>(bytes) / (1 << 20));
  RecordProperty("heap_bytes", std::to_string(bytes));
  EXPECT_LE(bytes, std::size_t{64} << 20);
  // The rows alone: 8 groups of 128 tokens to dispatch, 128 tokens with 8 answers to combine, two lanes.
  const std::size_t rows =
      2 * (8 * 128 * (config.row_bytes() + config.scale_row_bytes()) + 128 * 8 * config.answer_bytes());
  EXPECT_GE(bytes, rows);
  EXPECT_LE(bytes, rows + (std::size_t{1} << 20));
}

// A row is held once for each destination rank, never for each expert.
TEST(Heap, GrowsWithTokensNotWithExperts) {
  Config config = reference_shape();
  const std::size_t few = config.heap_bytes(8);
  config.experts = 1024;
  EXPECT_LE(config.heap_bytes(8), few + (std::size_t{1} << 20));
  config = reference_shape();
  config.max_tokens = 256;
  EXPECT_LE(config.heap_bytes(8), 2 * few);
  EXPECT_GE(config.heap_bytes(8), 2 * few - (std::size_t{1} << 20));
  config = reference_shape();
  config.in_flight = 1;
  EXPECT_LE(config.heap_bytes(8), few / 2 + 4096);
  config = reference_shape();
  config.way = Way::direct;  // no slots at all
  EXPECT_LE(config.heap_bytes(8), std::size_t{1} << 20);
}

TEST(Heap, IsWhatIsMapped) {
  for (const Case& one : cases()) {
    for (const std::size_t symmetric :
         {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{70000}}) {
      Scene s = scene_on(std::get<Path>(one), std::get<Layout>(one));
      s.config.symmetric_bytes = symmetric;
      s.config.scale_columns = 3;
      const std::size_t expected = s.config.heap_bytes(4) + 2 * ((symmetric + 4095) / 4096 * 4096);
      EXPECT_EQ(s.config.mapped_bytes(4), expected);
      const auto part = [&](World world) {
        Engine engine(std::move(world), s.config);
        require(engine.mapped_bytes() == expected,
                std::to_string(engine.mapped_bytes()) + " bytes are mapped");
      };
      EXPECT_EQ(complaints(play(Home::threads, 4, 20, part)), "");
    }
  }
}

TEST(Heap, IsWhatTheSystemMaps) {
  MOELANE_SKIP_ON_GPU("their heaps are not in the process's address space alone");
  World world = World::threads(1).front();
  world.barrier();  // so that what the world itself needs is there
  const std::size_t before = address_space();
  const Config config = reference_shape();
  Engine engine(world, config);
  const std::size_t mapped = address_space() - before;
  EXPECT_GE(mapped, engine.mapped_bytes());
  EXPECT_LE(mapped, engine.mapped_bytes() + (std::size_t{1} << 20));
}

}  // namespace
}  // namespace moelane::test
