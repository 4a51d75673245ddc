#include <gtest/gtest.h>

#include <cstring>

#include "cpu/convert.hpp"
#include "reference/expected_combine.hpp"
#include "reference/toy_expert.hpp"
#include "routing/random.hpp"

namespace moelane::tools {
namespace {

const std::vector<std::int32_t> kTable{0, 0, 0};

Config one_row() {
  Config config;
  config.experts = 3;
  config.topk = config.max_tokens = 1;
  config.dtype = DType::fp32;
  return config;
}

// To expert 2, whose factor is 1.
GroupStep one_token(const Config& config) {
  GroupStep group;
  group.tokens = 1;
  group.ids = {2};
  group.weights = {1};
  group.x.resize(config.row_bytes());
  return group;
}

std::uint32_t element(const std::vector<std::byte>& row, DType type, std::size_t i) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, row.data() + i * size_of(type), size_of(type));
  return static_cast<std::uint32_t>(bits);
}

// The toy experts and the reference convert by different code, and the library by a third: all agree on every
// code.
TEST(Conversions, OfEveryCode) {
  for (const DType type : {DType::fp8_e4m3, DType::bf16, DType::fp16}) {
    for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
      Config config = one_row();
      config.dtype = type;
      config.combine_dtype = config.out_dtype = out;
      const std::uint32_t codes = type == DType::fp8_e4m3 ? 256 : 65536;
      config.hidden = static_cast<int>(codes);
      GroupStep group = one_token(config);
      for (std::uint32_t c = 0; c < codes; ++c)
        std::memcpy(group.x.data() + c * size_of(type), &c, size_of(type));
      std::vector<std::byte> answer(config.answer_bytes());
      toy_expert(config, 2, group.x.data(), nullptr, answer.data());
      const std::vector<std::byte> combined = expected_combine(config, kTable, group, nullptr, {});
      for (std::uint32_t c = 0; c < codes; ++c) {
        const std::uint32_t bits = type == DType::fp8_e4m3 ? cpu::e4m3_to_bits(static_cast<std::uint8_t>(c))
                                   : type == DType::bf16   ? cpu::bf16_to_bits(static_cast<std::uint16_t>(c))
                                                           : cpu::half_to_bits(static_cast<std::uint16_t>(c));
        const std::uint32_t wanted = out == DType::fp32   ? bits
                                     : out == DType::bf16 ? cpu::bits_to_bf16(bits)
                                                          : cpu::bits_to_half(bits);
        const std::uint32_t toy = element(answer, out, c), sum = element(combined, out, c);
        ASSERT_EQ(toy, wanted) << name_of(type) << " " << c << " to " << name_of(out);
        const bool minus_zero = cpu::magnitude(wanted) == 0 || wanted == 0x8000;  // +0 + -0 is +0
        ASSERT_EQ(sum, minus_zero ? 0 : wanted) << name_of(type) << " " << c << " to " << name_of(out);
      }
    }
  }
}

// Random float32, denormals and the edges of rounding among them.
TEST(Conversions, OfEveryKindOfFloat) {
  for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
    Config config = one_row();
    config.hidden = 1 << 18;
    config.combine_dtype = config.out_dtype = out;
    GroupStep group = one_token(config);
    Random random(3, 1, 4, 1);
    for (std::size_t i = 0; i < group.x.size(); i += 4) {
      auto bits = static_cast<std::uint32_t>(random.next());
      if (i % 8 == 0) bits = (bits & 0x81FFFFFFU) + 0x36000000U;  // about where fp16 has denormals
      if (i % 32 == 4) bits &= 0xFFFFF000U;                       // ties
      std::memcpy(group.x.data() + i, &bits, 4);
    }
    std::vector<std::byte> answer(config.answer_bytes());
    toy_expert(config, 2, group.x.data(), nullptr, answer.data());
    const std::vector<std::byte> combined = expected_combine(config, kTable, group, nullptr, {});
    for (std::size_t i = 0; i < (1U << 18); ++i) {
      const std::uint32_t bits = element(group.x, DType::fp32, i);
      const std::uint32_t toy = element(answer, out, i), sum = element(combined, out, i);
      const std::uint32_t wanted = out == DType::fp32   ? cpu::canonical(bits)
                                   : out == DType::bf16 ? cpu::bits_to_bf16(bits)
                                                        : cpu::bits_to_half(bits);
      ASSERT_EQ(toy, wanted) << bits;
      ASSERT_TRUE(sum == wanted || (sum == 0 && (wanted & 0x7FFF7FFFU) == 0)) << bits;
    }
  }
}

}  // namespace
}  // namespace moelane::tools
