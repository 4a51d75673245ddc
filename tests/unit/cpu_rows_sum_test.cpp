#include "cpu_rows.hpp"

namespace moelane::cpu {
namespace {

TEST_P(CpuRows, SumsOfEveryLengthAndAlignment) {
  std::mt19937_64 random(13);
  constexpr int kRows[] = {0, 1, 2, 3, 8, 32};
  for (DType in : kFloats) {
    for (DType out : kFloats) {
      for (std::size_t hidden = 0; hidden <= 200; ++hidden) {
        const auto data = static_cast<Data>(random() % 3);
        const Case c(in, out, hidden, kRows[random() % std::size(kRows)], data, random);
        for (Store store : {Store::cached, Store::stream}) {
          ASSERT_NO_FATAL_FAILURE(expect_equal(c, random() % 2 != 0, store, "random"));
        }
      }
    }
  }
}

TEST_P(CpuRows, SumsLongRows) {
  std::mt19937_64 random(17);
  for (DType in : kFloats) {
    for (DType out : kFloats) {
      for (std::size_t hidden : {2048U, 2880U, 1033U}) {
        const Case c(in, out, hidden, 8, Data::tame, random);
        ASSERT_NO_FATAL_FAILURE(expect_equal(c, false, Store::stream, "long"));
        ASSERT_NO_FATAL_FAILURE(expect_equal(c, true, Store::stream, "long"));
        ASSERT_NO_FATAL_FAILURE(expect_equal(c, true, Store::cached, "long"));
      }
    }
  }
}

TEST_P(CpuRows, SumsEveryCode) {
  for (DType in : {DType::bf16, DType::fp16}) {
    std::vector<std::uint16_t> codes(65536);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
    const void* rows[] = {codes.data()};
    for (DType out : kFloats) {
      for (float weight :
           {1.0F, -1.0F, 0.3F, 0x1p-130F, 0x1.8p-8F, 1e30F, 0.0F, std::numeric_limits<float>::infinity()}) {
        SumArgs args{.rows = rows, .weights = &weight, .n = 1, .in = in, .hidden = 65536, .out_type = out};
        Bytes wanted(65536 * size_of(out));
        Bytes got(wanted.size());
        args.out = wanted.data();
        wanted_sum(args);
        args.out = got.data();
        weighted_sum(args);
        ASSERT_EQ(got, wanted) << name_of(in) << " to " << name_of(out) << " times " << weight;
      }
    }
  }
}

// 1 + 2^-12 squared and less its leading part is 2^-24 with one rounding, 0 with two.
TEST_P(CpuRows, SumsAreFused) {
  const float a = 0x1.001p0F;
  const float row0[] = {0x1.002p0F};
  const float row1[] = {a};
  const void* rows[] = {row0, row1};
  const float weights[] = {-1.0F, a};
  float out = 5;
  weighted_sum({.rows = rows,
                .weights = weights,
                .n = 2,
                .in = DType::fp32,
                .hidden = 1,
                .out = &out,
                .out_type = DType::fp32});
  EXPECT_EQ(out, 0x1p-24F);
  const float old[] = {-0x1p-24F};
  std::memcpy(&out, old, 4);
  weighted_sum({.rows = rows,
                .weights = weights,
                .n = 2,
                .in = DType::fp32,
                .hidden = 1,
                .out = &out,
                .out_type = DType::fp32,
                .accumulate = true});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(out), 0U);
}

TEST_P(CpuRows, SumOfNothingIsPlusZeroOrTheOldValue) {
  std::uint16_t out[] = {0xFFFF, 0x8000, 0x3F80};
  SumArgs args{
      .n = 0, .in = DType::bf16, .hidden = 3, .out = out, .out_type = DType::bf16, .accumulate = true};
  weighted_sum(args);
  EXPECT_EQ(out[0], 0x7FC0);
  EXPECT_EQ(out[1], 0x0000);  // +0 + -0
  EXPECT_EQ(out[2], 0x3F80);
  args.accumulate = false;
  weighted_sum(args);
  EXPECT_EQ(out[2], 0x0000);
}

}  // namespace
}  // namespace moelane::cpu
