#include "support/messy_routing.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace moelane::test {
namespace {

float strange(std::uint64_t which) {
  constexpr float kStrange[] = {0.0F, -0.0F, 1.0F, -1.0F, 1e-40F, -1e-44F, 3e5F, 1e-20F};
  return kStrange[which % 8];
}

// Codes of a type that go wrong easily: zeros, smallest, largest, infinity, NaN.
std::uint32_t special_code(DType type, std::uint64_t which) {
  constexpr std::uint32_t kFp8[] = {0x00, 0x80, 0x01, 0x87, 0x08, 0x7E, 0x7F, 0xFF};
  constexpr std::uint32_t kBf16[] = {0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0x7F7F, 0x7F80, 0xFFC1};
  constexpr std::uint32_t kFp16[] = {0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFC00, 0x7E01};
  constexpr std::uint32_t kFp32[] = {0x00000000, 0x80000000, 0x00000001, 0x807FFFFF,
                                     0x00800000, 0x7F7FFFFF, 0xFF800000, 0x7FC00001};
  switch (type) {
    case DType::fp8_e4m3:
      return kFp8[which % 8];
    case DType::bf16:
      return kBf16[which % 8];
    case DType::fp16:
      return kFp16[which % 8];
    default:
      return kFp32[which % 8];
  }
}

}  // namespace

tools::Routing MessyRouting::draw(int step, int group, int /*groups*/, int tokens) const {
  const auto s = static_cast<std::uint64_t>(step), g = static_cast<std::uint64_t>(group);
  tools::Random random(seed_, s, g, tools::stream::routing_ids);
  const auto chance = [&](double p) { return random.unit() < static_cast<float>(p); };
  tools::Routing routing{tokens, topk_, {}, {}};
  for (int t = 0; t < tokens; ++t) {
    const bool nothing = chance(habits_.nothing);
    for (int k = 0; k < topk_; ++k) {
      auto id = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(experts_)));
      if (chance(habits_.hot)) id = habits_.hot_expert;
      if (nothing || chance(habits_.none)) id = -1;
      routing.ids.push_back(id);
      const std::uint64_t word = random.next();
      const float usual = static_cast<float>(word >> 40) * 0x1p-22F - 2.0F;
      routing.weights.push_back(habits_.strange_weights && word % 16 == 0 ? strange(word >> 4) : usual);
    }
  }
  return routing;
}

void sprinkle(const Config& config, tools::GroupStep& step, tools::Random random) {
  const std::size_t size = size_of(config.dtype);
  for (std::size_t i = 0; i < step.x.size() / size; ++i) {
    const std::uint64_t word = random.next();
    if (word % 8 != 0) continue;
    const std::uint32_t code = special_code(config.dtype, word >> 8);
    std::memcpy(step.x.data() + i * size, &code, size);
  }
  for (float& weight : step.weights) {
    const std::uint64_t word = random.next();
    if (word % 16 == 0) weight = std::bit_cast<float>(special_code(DType::fp32, word >> 8));
  }
}

}  // namespace moelane::test
