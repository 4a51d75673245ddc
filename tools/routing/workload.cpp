#include "routing/workload.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "routing/random.hpp"

namespace moelane::tools {
namespace {

constexpr std::uint64_t kTokens = stream::first_free, kRows = kTokens + 1, kScales = kTokens + 2,
                        kOldOutput = kTokens + 64;

// Finite elements of either sign with all bits of the fraction random, near enough to 1 that no sum of the
// toy experts' rows overflows fp16, and never 0, so that a missing element cannot pass for one.
std::uint8_t fp8_of(std::uint64_t random) {
  const auto magnitude = static_cast<std::uint8_t>(random & 0x7F);
  const std::uint8_t usable = magnitude == 0 ? 0x30 : magnitude == 0x7F ? 0x7E : magnitude;
  return static_cast<std::uint8_t>(usable | (random & 0x80));
}

// `bits`: of the fraction; `low`: the smallest exponent as stored; 2^spread exponents.
std::uint32_t float_of(std::uint64_t random, int bits, std::uint32_t low, int spread, int sign_at) {
  const auto word = static_cast<std::uint32_t>(random);
  const std::uint32_t fraction = word & ((1U << bits) - 1);
  const std::uint32_t exponent = low + (word >> bits & ((1U << spread) - 1));
  return fraction | exponent << bits | (word >> 31) << sign_at;
}

void fill_rows(DType type, Random random, std::vector<std::byte>& rows) {
  std::byte* to = rows.data();
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < rows.size(); i += size_of(type)) {
    switch (type) {
      case DType::fp8_e4m3: {
        if (i % 8 == 0) word = random.next();
        to[i] = static_cast<std::byte>(fp8_of(word >> i % 8 * 8));
        break;
      }
      case DType::fp32: {
        if (i % 8 == 0) word = random.next();
        const std::uint32_t bits = float_of(word >> i % 8 * 8, 23, 120, 4, 31);
        std::memcpy(to + i, &bits, 4);
        break;
      }
      default: {
        if (i % 4 == 0) word = random.next();
        const std::uint64_t part = word >> i % 4 * 8;
        const auto bits = static_cast<std::uint16_t>(type == DType::bf16 ? float_of(part, 7, 120, 4, 15)
                                                                         : float_of(part, 10, 11, 3, 15));
        std::memcpy(to + i, &bits, 2);
      }
    }
  }
}

// Powers of two from 1/8 to 16 where the toy experts use them, else any bytes.
void fill_scales(int bytes, Random random, std::vector<std::byte>& scales) {
  const auto each = static_cast<std::size_t>(bytes);
  for (std::size_t i = 0; i < scales.size(); i += each) {
    std::uint64_t word = random.next();
    if (bytes == 4) word = (124 + word % 8) << 23;
    std::memcpy(scales.data() + i, &word, each);
  }
}

}  // namespace

Workload::Workload(const Config& config, int ranks, const RoutingSource& routing, TokenRange tokens,
                   std::uint64_t seed)
    : config_(config), routing_(&routing), tokens_(tokens), seed_(seed), groups_(ranks / config.tp_size) {}

int Workload::tokens(int step, int group) const {
  Random random(seed_, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(group), kTokens);
  return tokens_.low +
         static_cast<int>(random.below(static_cast<std::uint64_t>(tokens_.high - tokens_.low) + 1));
}

Routing Workload::routing(int step, int group) const {
  return routing_->draw(step, group, groups_, tokens(step, group));
}

GroupStep Workload::make(int step, int group) const {
  Routing routed = routing(step, group);
  GroupStep made;
  made.tokens = routed.tokens;
  made.ids = std::move(routed.ids);
  made.weights = std::move(routed.weights);
  const auto s = static_cast<std::uint64_t>(step), g = static_cast<std::uint64_t>(group);
  const auto tokens = static_cast<std::size_t>(made.tokens);
  made.x.resize(tokens * config_.row_bytes());
  fill_rows(config_.dtype, Random(seed_, s, g, kRows), made.x);
  made.scales.resize(tokens * config_.scale_row_bytes());
  fill_scales(config_.scale_bytes, Random(seed_, s, g, kScales), made.scales);
  return made;
}

std::vector<std::byte> Workload::old_output(int step, int group) const {
  const std::size_t size = size_of(config_.out_dtype);
  std::vector<std::byte> out(static_cast<std::size_t>(config_.max_tokens) *
                             static_cast<std::size_t>(config_.hidden) * size);
  Random random(seed_, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(group), kOldOutput);
  for (std::size_t at = 0; at < out.size(); at += size) {
    const auto bits = static_cast<std::uint32_t>(random.next());
    const std::uint32_t value = config_.out_dtype == DType::bf16   ? (bits & 0x807FU) | 0x3F00U
                                : config_.out_dtype == DType::fp16 ? (bits & 0x83FFU) | 0x3800U
                                                                   : (bits & 0x807FFFFFU) | 0x3F000000U;
    std::memcpy(out.data() + at, &value, size);
  }
  return out;
}

}  // namespace moelane::tools
