#include "cpu_rows.hpp"

namespace moelane::cpu {
namespace {

INSTANTIATE_TEST_SUITE_P(Isa, CpuRows, ::testing::ValuesIn(here()),
                         [](const auto& isa) { return std::string(name_of(isa.param)); });

TEST_P(CpuRows, ToFloatOfEveryCode) {
  for (DType type : {DType::fp8_e4m3, DType::bf16, DType::fp16}) {
    const std::size_t codes = std::size_t{1} << (8 * size_of(type));
    Bytes source(codes * size_of(type));
    for (std::size_t code = 0; code < codes; ++code) {
      std::memcpy(source.data() + code * size_of(type), &code, size_of(type));
    }
    std::vector<float> row(codes);
    to_float_row(row.data(), source.data(), static_cast<std::int64_t>(codes), type);
    for (std::size_t code = 0; code < codes; ++code) {
      const void* element = source.data() + code * size_of(type);
      const auto wanted = std::bit_cast<std::uint32_t>(wanted_float(element, type));
      ASSERT_EQ(std::bit_cast<std::uint32_t>(row[code]), wanted) << name_of(type) << " " << code;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(to_float(element, type)), wanted)
          << name_of(type) << " " << code;
    }
  }
}

// Every number of the target, the halfway point to its successor, and the floats beside both, of either sign;
// then random bits, and the edges of float32 itself.
std::vector<float> hard_to_round(DType type) {
  std::vector<float> values;
  const auto beside = [&](float value) {
    for (float v : {value, std::nextafter(value, 1e38F), std::nextafter(value, -1.0F)}) {
      values.push_back(v);
      values.push_back(-v);
    }
  };
  if (type != DType::fp32) {
    const Format f = format_of(type);
    for (std::uint32_t code = 0; code < (sign_bit(f) - 1) >> f.fraction << f.fraction; ++code) {
      const double value = value_of(code, f);
      beside(static_cast<float>(value));
      beside(static_cast<float>((value + value_of(code + 1, f)) / 2));
    }
  }
  for (std::uint32_t bits :
       {0U,          1U,          0x007FFFFFU, 0x00800000U, 0x32FFFFFFU, 0x33000000U, 0x33000001U,
        0x38800000U, 0x477FEFFFU, 0x477FF000U, 0x47800000U, 0x7F7F7FFFU, 0x7F7F8000U, 0x7F7FFFFFU,
        0x7F800000U, 0x7F800001U, 0x7FBFFFFFU, 0x7FC00000U, 0x7FC12345U, 0x7FFFFFFFU}) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(std::bit_cast<float>(bits | 0x80000000U));
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  return values;
}

TEST_P(CpuRows, FromFloatRoundsToNearestEven) {
  for (DType type : kFloats) {
    const std::vector<float> values = hard_to_round(type);
    Bytes row(values.size() * size_of(type));
    from_float_row(row.data(), values.data(), static_cast<std::int64_t>(values.size()), type);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint32_t wanted = 0;
      std::uint32_t one = 0;
      std::uint32_t of_row = 0;
      wanted_element(values[i], &wanted, type);
      from_float(values[i], &one, type);
      std::memcpy(&of_row, row.data() + i * size_of(type), size_of(type));
      ASSERT_EQ(one, wanted) << name_of(type) << " " << std::bit_cast<std::uint32_t>(values[i]);
      ASSERT_EQ(of_row, wanted) << name_of(type) << " " << std::bit_cast<std::uint32_t>(values[i]);
    }
  }
}

TEST_P(CpuRows, FromFloatByHand) {
  const auto code = [](float value, DType type) {
    std::uint16_t bits = 0;
    from_float(value, &bits, type);
    return bits;
  };
  EXPECT_EQ(code(1.00390625F, DType::bf16), 0x3F80);  // 1 + 2^-8, halfway, down to even
  EXPECT_EQ(code(1.01171875F, DType::bf16), 0x3F82);  // 1 + 3 * 2^-8, halfway, up to even
  EXPECT_EQ(code(-0.0F, DType::bf16), 0x8000);
  EXPECT_EQ(code(-std::nanf(""), DType::bf16), 0x7FC0);
  EXPECT_EQ(code(65519.996F, DType::fp16), 0x7BFF);
  EXPECT_EQ(code(65520.0F, DType::fp16), 0x7C00);
  EXPECT_EQ(code(-1e30F, DType::fp16), 0xFC00);
  EXPECT_EQ(code(0x1p-24F, DType::fp16), 0x0001);
  EXPECT_EQ(code(0x1p-25F, DType::fp16), 0x0000);
  EXPECT_EQ(code(0x1.8p-24F, DType::fp16), 0x0002);
  EXPECT_EQ(code(-std::nanf(""), DType::fp16), 0x7E00);
  const unsigned char largest = 0x7E;
  EXPECT_EQ(to_float(&largest, DType::fp8_e4m3), 448.0F);
}

TEST_P(CpuRows, ConvertsRowsOfEveryLengthAndAlignment) {
  std::mt19937_64 random(11);
  for (DType type : kSources) {
    for (std::size_t n = 0; n <= 200; ++n) {
      const std::size_t in_at = random() % 64;
      const std::size_t out_at = random() % 64;
      Bytes in(in_at + n * size_of(type));  // no byte more: the sanitizers watch its end
      Bytes out(out_at + n * 4 + 64, 0xA5);
      Bytes wanted = out;
      fill(in.data() + in_at, n, type, Data::any, random);
      for (std::size_t i = 0; i < n; ++i) {
        const float value = wanted_float(in.data() + in_at + i * size_of(type), type);
        std::memcpy(wanted.data() + out_at + 4 * i, &value, 4);
      }
      std::vector<float> floats(n);
      to_float_row(floats.data(), in.data() + in_at, static_cast<std::int64_t>(n), type);
      if (n != 0) std::memcpy(out.data() + out_at, floats.data(), 4 * n);
      ASSERT_EQ(out, wanted) << name_of(type) << " n " << n;

      if (type == DType::fp8_e4m3) continue;
      Bytes back(out_at + n * size_of(type) + 64, 0x5A);
      Bytes wanted_back = back;
      for (std::size_t i = 0; i < n; ++i) {
        wanted_element(floats[i], wanted_back.data() + out_at + i * size_of(type), type);
      }
      from_float_row(back.data() + out_at, floats.data(), static_cast<std::int64_t>(n), type);
      ASSERT_EQ(back, wanted_back) << name_of(type) << " n " << n;
    }
  }
}

}  // namespace
}  // namespace moelane::cpu
