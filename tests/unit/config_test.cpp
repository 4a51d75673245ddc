#include "moelane/config.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "moelane/error.hpp"

namespace moelane {
namespace {

Config valid() {
  Config config;
  config.experts = 16;
  config.topk = 4;
  config.hidden = 32;
  config.max_tokens = 8;
  return config;
}

std::string refusal(const Config& config, int ranks = 4) {
  try {
    config.validate(ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return "";
}

// A configuration with one field changed.
std::string with(const std::function<void(Config&)>& change, int ranks = 4) {
  Config config = valid();
  change(config);
  return refusal(config, ranks);
}

TEST(Config, LimitsOfNumbers) {
  struct Field {
    const char* name;
    int Config::*field;
    int low, high;
  };
  // max_tokens and alignment meet sums of several fields before their own limits; tested below.
  for (const Field& f : std::vector<Field>{{"experts", &Config::experts, 1, 65536},
                                           {"topk", &Config::topk, 1, 32},
                                           {"hidden", &Config::hidden, 1, 1 << 20},
                                           {"in_flight", &Config::in_flight, 1, 64},
                                           {"num_sms", &Config::num_sms, 0, 1024},
                                           {"scale_columns", &Config::scale_columns, 0, 1 << 20}}) {
    const auto set = [&](int value) { return with([&](Config& c) { c.*f.field = value; }); };
    const std::string allowed = ", allowed is " + std::to_string(f.low) + " to " + std::to_string(f.high);
    EXPECT_EQ(set(f.low), "");
    EXPECT_EQ(set(f.high), "");
    for (const int wrong :
         {f.low - 1, f.high + 1, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
      EXPECT_EQ(set(wrong), f.name + (" is " + std::to_string(wrong)) + allowed);
    }
  }
  EXPECT_EQ(with([](Config& c) { c.max_tokens = 0; }), "max_tokens is 0, allowed is 1 to 4194303");
  EXPECT_EQ(with([](Config& c) { c.max_tokens = 4194304; }),
            "max_tokens is 4194304, allowed is 1 to 4194303");
  EXPECT_EQ(with([](Config& c) { c.max_tokens = 4194303, c.topk = 5; }),
            "max_tokens * topk is 20971515, allowed is 1 to 16777215");
  EXPECT_EQ(with([](Config& c) { c.max_tokens = 4194303; }), "");
  EXPECT_EQ(
      with([](Config& c) { c.max_tokens = 4194303; }, 512),
      "rows of a step (groups * max_tokens * topk + experts * alignment) is 8589932560, allowed is 1 to "
      "2147483647");
  EXPECT_EQ(
      with([](Config& c) { c.layout = Layout::contiguous, c.alignment = 65536, c.experts = 65536; }),
      "rows of a step (groups * max_tokens * topk + experts * alignment) is 4294967424, allowed is 1 to "
      "2147483647");
}

TEST(Config, World) {
  EXPECT_EQ(refusal(valid(), 0), "ranks is 0, allowed is 1 to 1024");
  EXPECT_EQ(refusal(valid(), 1025), "ranks is 1025, allowed is 1 to 1024");
  EXPECT_EQ(refusal(valid(), 1024), "");
  for (const int tp : {1, 2, 3, 6}) EXPECT_EQ(with([&](Config& c) { c.tp_size = tp; }, 6), "");
  EXPECT_EQ(with([](Config& c) { c.tp_size = 4; }, 6), "tp_size is 4, allowed is a divisor of the 6 ranks");
  EXPECT_EQ(with([](Config& c) { c.tp_size = 0; }, 6), "tp_size is 0, allowed is 1 to 6");
  EXPECT_EQ(with([](Config& c) { c.tp_size = 12; }, 6), "tp_size is 12, allowed is 1 to 6");
}

TEST(Config, Types) {
  EXPECT_EQ(with([](Config& c) { c.dtype = DType::fp8_e4m3; }), "");
  for (const DType wrong : {DType::int32, DType::int64, DType::uint8, static_cast<DType>(77)}) {
    const std::string name(name_of(wrong));
    EXPECT_EQ(with([&](Config& c) { c.dtype = wrong; }),
              "dtype is " + name + ", allowed is fp8_e4m3, bf16, fp16 or fp32");
    EXPECT_EQ(with([&](Config& c) { c.combine_dtype = wrong; }),
              "combine_dtype is " + name + ", allowed is bf16, fp16 or fp32");
    EXPECT_EQ(with([&](Config& c) { c.out_dtype = wrong; }),
              "out_dtype is " + name + ", allowed is bf16, fp16 or fp32");
  }
  EXPECT_NE(with([](Config& c) { c.combine_dtype = DType::fp8_e4m3; }), "");
  EXPECT_NE(with([](Config& c) { c.out_dtype = DType::fp8_e4m3; }), "");
  for (const int bytes : {1, 2, 4, 8}) EXPECT_EQ(with([&](Config& c) { c.scale_bytes = bytes; }), "");
  for (const int bytes : {-1, 0, 3, 5, 16}) {
    EXPECT_EQ(with([&](Config& c) { c.scale_bytes = bytes; }),
              "scale_bytes is " + std::to_string(bytes) + ", allowed is 1, 2, 4 or 8");
  }
}

TEST(Config, LayoutAndWay) {
  EXPECT_EQ(with([](Config& c) { c.layout = static_cast<Layout>(3); }),
            "layout is 3, allowed is padded, contiguous or ranked");
  EXPECT_EQ(with([](Config& c) { c.way = static_cast<Way>(9); }),
            "way is 9, allowed is automatic, put or direct");
  EXPECT_EQ(with([](Config& c) { c.alignment = 128; }),
            "alignment is 128, allowed is 1 unless layout is contiguous");
  EXPECT_EQ(with([](Config& c) { c.alignment = 128, c.layout = Layout::contiguous; }), "");
  for (const int wrong : {0, -1, 65537}) {
    EXPECT_EQ(with([&](Config& c) { c.alignment = wrong, c.layout = Layout::contiguous; }),
              "alignment is " + std::to_string(wrong) + ", allowed is 1 to 65536");
  }
  EXPECT_EQ(with([](Config& c) { c.partial_sums = true, c.layout = Layout::ranked; }),
            "partial_sums is true, allowed is false with the ranked layout, whose rows are sums already");
  EXPECT_EQ(with([](Config& c) { c.partial_sums = true, c.way = Way::direct; }),
            "way is direct, allowed is put or auto with partial_sums");
  EXPECT_EQ(with([](Config& c) { c.force_puts = true, c.way = Way::direct; }),
            "way is direct, allowed is put or auto with force_puts");
}

TEST(Config, TimeAndMemory) {
  EXPECT_EQ(with([](Config& c) { c.timeout = std::numeric_limits<double>::infinity(); }), "");
  for (const double wrong : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    const std::string sentence = with([&](Config& c) { c.timeout = wrong; });
    EXPECT_TRUE(sentence.starts_with("timeout is ") &&
                sentence.ends_with(", allowed is more than 0 seconds, or infinity"))
        << sentence;
  }
  EXPECT_EQ(with([](Config& c) { c.symmetric_bytes = std::size_t{1} << 42; }), "");
  EXPECT_NE(with([](Config& c) { c.symmetric_bytes = (std::size_t{1} << 42) + 1; }), "");
  EXPECT_NE(with([](Config& c) { c.symmetric_bytes = ~std::size_t{0}; }), "");
}

TEST(Config, Sizes) {
  Config config = valid();
  config.dtype = DType::fp8_e4m3;
  config.scale_columns = 3;
  config.scale_bytes = 8;
  config.combine_dtype = DType::fp32;
  EXPECT_EQ(config.row_bytes(), 32U);
  EXPECT_EQ(config.scale_row_bytes(), 24U);
  EXPECT_EQ(config.answer_bytes(), 128U);
  config.partial_sums = true;
  EXPECT_EQ(config.answer_bytes(), 64U);
  EXPECT_THROW((void)config.heap_bytes(0), Error);
  EXPECT_THROW((void)config.mapped_bytes(5000), Error);
}

// Ranks compare this text: every field that matters is in it, and none that does not.
TEST(Config, CanonicalText) {
  const std::vector<std::function<void(Config&)>> changes{
      [](Config& c) { c.experts = 17; },        [](Config& c) { c.topk = 5; },
      [](Config& c) { c.hidden = 33; },         [](Config& c) { c.max_tokens = 9; },
      [](Config& c) { c.tp_size = 2; },         [](Config& c) { c.in_flight = 1; },
      [](Config& c) { c.dtype = DType::fp16; }, [](Config& c) { c.combine_dtype = DType::fp16; },
      [](Config& c) { c.scale_columns = 1; },   [](Config& c) { c.out_dtype = DType::fp16; },
      [](Config& c) { c.scale_bytes = 1; },     [](Config& c) { c.layout = Layout::ranked; },
      [](Config& c) { c.alignment = 2; },       [](Config& c) { c.way = Way::put; },
      [](Config& c) { c.partial_sums = true; }, [](Config& c) { c.force_puts = true; },
      [](Config& c) { c.symmetric_bytes = 1; },
  };
  for (const auto& change : changes) {
    Config config = valid();
    change(config);
    EXPECT_NE(config.canonical(), valid().canonical());
  }
  Config config = valid();
  config.timeout = 1;
  config.num_sms = 7;
  EXPECT_EQ(config.canonical(), valid().canonical());
  Config large;
  large.experts = large.hidden = large.max_tokens = large.scale_columns = large.alignment = 1 << 30;
  large.symmetric_bytes = ~std::size_t{0};
  EXPECT_LT(large.canonical().size(),
            900U);  // what the ranks exchange has 1024 bytes, with the placement's line
}

}  // namespace
}  // namespace moelane
