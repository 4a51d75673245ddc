#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cpu/rows.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "moelane/error.hpp"

namespace moelane::cpu {
namespace {

using Bytes = std::vector<unsigned char>;

// --- The definition again, by other means: conversions through a table of every number that a type has. ---

struct Format {
  int bits, fraction, bias;
  bool infinities;  // else the highest exponent holds numbers too, and only the last code is NaN
};

constexpr Format format_of(DType type) {
  if (type == DType::fp8_e4m3) return {8, 3, 7, false};
  if (type == DType::fp16) return {16, 10, 15, true};
  return {16, 7, 127, true};
}

std::uint32_t sign_bit(Format f) { return 1U << (f.bits - 1); }

bool is_nan_code(std::uint32_t code, Format f) {
  const std::uint32_t rest = code & (sign_bit(f) - 1);
  return f.infinities ? rest > (sign_bit(f) - 1) >> f.fraction << f.fraction : rest == sign_bit(f) - 1;
}

// Exact, and right beyond the largest number: there it goes on as if the exponent did.
double value_of(std::uint32_t magnitude_code, Format f) {
  const auto exponent = static_cast<int>(magnitude_code >> f.fraction);
  const auto fraction = static_cast<int>(magnitude_code & ((1U << f.fraction) - 1));
  const int one = 1 << f.fraction;
  return exponent == 0 ? std::ldexp(fraction, 1 - f.bias - f.fraction)
                       : std::ldexp(one + fraction, exponent - f.bias - f.fraction);
}

float wanted_float(const void* element, DType type) {
  float result = 0;
  if (type == DType::fp32) {
    std::memcpy(&result, element, sizeof result);
  } else {
    const Format f = format_of(type);
    std::uint32_t code = 0;
    std::memcpy(&code, element, size_of(type));  // little endian, as all machines of this library
    const std::uint32_t rest = code & (sign_bit(f) - 1);
    const bool infinite = f.infinities && rest == (sign_bit(f) - 1) >> f.fraction << f.fraction;
    result = infinite ? std::numeric_limits<float>::infinity() : static_cast<float>(value_of(rest, f));
    if ((code & sign_bit(f)) != 0) result = -result;
    if (is_nan_code(code, f)) result = std::nanf("");
  }
  return std::isnan(result) ? std::bit_cast<float>(0x7FC00000U) : result;
}

// The nearest code by bisection among the values, ties to the even code.
std::uint16_t nearest_code(float value, DType type) {
  const Format f = format_of(type);
  const std::uint32_t infinity = (sign_bit(f) - 1) >> f.fraction << f.fraction;
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | 1U << (f.fraction - 1));
  const std::uint32_t sign = std::signbit(value) ? sign_bit(f) : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= value_of(infinity, f)) return static_cast<std::uint16_t>(sign | infinity);
  std::uint32_t low = 0;
  std::uint32_t high = infinity;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (value_of(middle, f) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - value_of(low, f);  // exact, as all of these
  const double above = value_of(high, f) - magnitude;
  const bool up = below > above || (below == above && (low & 1) != 0);
  return static_cast<std::uint16_t>(sign | (up ? high : low));
}

void wanted_element(float value, void* element, DType type) {
  if (type == DType::fp32) {
    if (std::isnan(value)) value = std::bit_cast<float>(0x7FC00000U);
    std::memcpy(element, &value, sizeof value);
  } else {
    const std::uint16_t code = nearest_code(value, type);
    std::memcpy(element, &code, sizeof code);
  }
}

// args.out holds the old values in, the result out.
void wanted_sum(const SumArgs& args) {
  for (std::int64_t j = 0; j < args.hidden; ++j) {
    const auto element = static_cast<std::size_t>(j) * size_of(args.in);
    float sum = 0.0F;
    for (int i = 0; i < args.n; ++i) {
      sum = std::fma(args.weights[i], wanted_float(static_cast<const char*>(args.rows[i]) + element, args.in),
                     sum);
    }
    char* out = static_cast<char*>(args.out) + static_cast<std::size_t>(j) * size_of(args.out_type);
    if (args.accumulate) sum = sum + wanted_float(out, args.out_type);
    wanted_element(sum, out, args.out_type);
  }
}

// --- Data. ---

constexpr DType kFloats[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr DType kSources[] = {DType::fp8_e4m3, DType::bf16, DType::fp16, DType::fp32};

enum class Data { tame, tiny, any };  // near 1; denormal or near it; all bits random

void fill(unsigned char* to, std::size_t n, DType type, Data data, std::mt19937_64& random) {
  std::uniform_real_distribution<float> uniform(-2.0F, 2.0F);
  for (std::size_t i = 0; i < n; ++i, to += size_of(type)) {
    const float value = uniform(random);
    const auto bits = random();
    if (data == Data::tame) {
      wanted_element(value, to, type);
    } else if (data == Data::tiny) {
      wanted_element(std::ldexp(value, type == DType::fp16 ? -16 : -127), to, type);
    } else {
      std::memcpy(to, &bits, size_of(type));
    }
  }
}

std::vector<Isa> here() {
  std::vector<Isa> all;
  for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (has_isa(isa)) all.push_back(isa);
  }
  return all;
}

class CpuRows : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa(best_isa()); }
};

INSTANTIATE_TEST_SUITE_P(Isa, CpuRows, ::testing::ValuesIn(here()),
                         [](const auto& isa) { return std::string(name_of(isa.param)); });

// --- Conversions. ---

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

// --- Sums. ---

// Rows, weights and an output at random alignments, between guard bytes.
struct Case {
  Case(DType in, DType out_type, std::size_t hidden, int n, Data data, std::mt19937_64& random)
      : out_at(64 + random() % 64), weights(static_cast<std::size_t>(n)) {
    for (int i = 0; i < n; ++i) {
      const std::size_t row_at = random() % 64;
      Bytes row(row_at + hidden * size_of(in));
      fill(row.data() + row_at, hidden, in, data, random);
      storage.push_back(std::move(row));
      rows.push_back(storage.back().data() + row_at);
      fill(reinterpret_cast<unsigned char*>(&weights[static_cast<std::size_t>(i)]), 1, DType::fp32,
           data == Data::tiny ? Data::tame : data, random);
    }
    old.assign(out_at + hidden * size_of(out_type) + 128, 0xA5);
    fill(old.data() + out_at, hidden, out_type, data, random);
    args = {.rows = rows.data(),
            .weights = weights.data(),
            .n = n,
            .in = in,
            .hidden = static_cast<std::int64_t>(hidden),
            .out_type = out_type};
  }

  template <typename Function>
  Bytes with(Function&& sum, bool accumulate, Store store) const {
    Bytes out = old;
    SumArgs a = args;
    a.out = out.data() + out_at;
    a.accumulate = accumulate;
    a.store = store;
    sum(a);
    return out;
  }

  std::size_t out_at;
  std::vector<Bytes> storage;
  std::vector<const void*> rows;
  std::vector<float> weights;
  Bytes old;
  SumArgs args;
};

void expect_equal(const Case& c, bool accumulate, Store store, const std::string& what) {
  const Bytes wanted = c.with(wanted_sum, accumulate, store);
  const Bytes got = c.with(weighted_sum, accumulate, store);
  const auto [w, g] = std::mismatch(wanted.begin(), wanted.end(), got.begin());
  ASSERT_EQ(w, wanted.end()) << what << " in " << name_of(c.args.in) << " out " << name_of(c.args.out_type)
                             << " n " << c.args.n << " hidden " << c.args.hidden << " accumulate "
                             << accumulate << ": byte "
                             << (g - got.begin()) - static_cast<std::ptrdiff_t>(c.out_at);
}

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

// --- The caller's floating-point modes. ---

#if defined(__x86_64__)
using Modes = unsigned;
Modes modes() { return _mm_getcsr() & ~0x3FU; }
void set_modes(Modes m) { _mm_setcsr(m); }
// Flush to zero, denormals are zero, each rounding, and all with traps for the last.
constexpr Modes kStrange[] = {0x9F80, 0x1FC0, 0x9FC0, 0x3F80, 0x5F80, 0x7F80, 0xFFC0, 0x8040};
#elif defined(__aarch64__)
using Modes = std::uint64_t;
Modes modes() {
  Modes m;
  asm volatile("mrs %0, fpcr" : "=r"(m));
  return m;
}
void set_modes(Modes m) { asm volatile("msr fpcr, %0" ::"r"(m)); }
constexpr Modes kStrange[] = {1U << 24, 1U << 22, 2U << 22, 3U << 22, 1U << 25, 1U << 19, 0x3F80000};
#else
using Modes = int;
Modes modes() { return std::fegetround(); }
void set_modes(Modes m) { std::fesetround(m); }
constexpr Modes kStrange[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
#endif

TEST_P(CpuRows, SumsInAnyFloatingPointMode) {
  std::mt19937_64 random(19);
  const Modes ours = modes();
  for (Modes strange : kStrange) {
    for (DType in : kFloats) {
      for (DType out : kFloats) {
        for (Data data : {Data::tame, Data::tiny, Data::any}) {
          const Case c(in, out, 131, 3, data, random);
          const Bytes wanted = c.with(wanted_sum, true, Store::cached);
          Modes after = 0;
          const Bytes got = c.with(
              [&](const SumArgs& args) {
                set_modes(strange);
                weighted_sum(args);
                after = modes();
                set_modes(ours);
              },
              true, Store::stream);
          ASSERT_EQ(got, wanted) << std::hex << strange << " " << name_of(in) << " " << name_of(out);
          ASSERT_EQ(after, strange);
        }
      }
    }
  }
}

TEST_P(CpuRows, ConvertsInAnyFloatingPointMode) {
  std::mt19937_64 random(23);
  const Modes ours = modes();
  for (Modes strange : kStrange) {
    for (DType type : kSources) {
      constexpr std::size_t kN = 3001;
      Bytes in(kN * size_of(type));
      fill(in.data(), kN, type, Data::any, random);
      std::vector<float> wanted(kN);
      std::vector<float> got(kN);
      Bytes wanted_back(kN * size_of(type));
      Bytes back(wanted_back.size());
      for (std::size_t i = 0; i < kN; ++i) {
        wanted[i] = wanted_float(in.data() + i * size_of(type), type);
        if (type != DType::fp8_e4m3) wanted_element(wanted[i], wanted_back.data() + i * size_of(type), type);
      }
      set_modes(strange);
      to_float_row(got.data(), in.data(), kN, type);
      if (type != DType::fp8_e4m3) from_float_row(back.data(), got.data(), kN, type);
      const Modes after = modes();
      set_modes(ours);
      ASSERT_EQ(after, strange);
      ASSERT_EQ(std::memcmp(got.data(), wanted.data(), 4 * kN), 0)
          << std::hex << strange << " " << name_of(type);
      ASSERT_EQ(back, wanted_back) << std::hex << strange << " " << name_of(type);
    }
  }
}

// --- Copies. ---

std::vector<std::size_t> sizes_to_copy() {
  std::vector<std::size_t> sizes;
  for (std::size_t size = 0; size <= 200; ++size) sizes.push_back(size);
  for (std::size_t size = 250; size <= 330; ++size) sizes.push_back(size);
  for (std::size_t size : {511U, 512U, 575U, 576U, 700U, 1023U, 4096U, 7391U, 7392U, 14336U, 70001U})
    sizes.push_back(size);
  return sizes;
}

TEST_P(CpuRows, CopiesToOneAndMany) {
  std::mt19937_64 random(29);
  for (std::size_t size : sizes_to_copy()) {
    for (int n : {1, 1, 0, 3, 8}) {
      for (Store store : {Store::cached, Store::stream}) {
        const std::size_t from_at = random() % 67;
        Bytes from(from_at + size);
        for (auto& byte : from) byte = static_cast<unsigned char>(random());
        std::vector<Bytes> to(static_cast<std::size_t>(n));
        std::vector<Bytes> wanted;
        std::vector<void*> pointers;
        for (Bytes& one : to) {
          const std::size_t to_at = random() % 131;
          one.assign(to_at + size + 70, 0xA5);
          wanted.push_back(one);
          if (size != 0) std::memcpy(wanted.back().data() + to_at, from.data() + from_at, size);
          pointers.push_back(one.data() + to_at);
        }
        if (n == 1) {
          copy(pointers[0], from.data() + from_at, size, store);
        } else {
          copy_to_many(pointers.data(), n, from.data() + from_at, size, store);
        }
        store_fence();
        for (std::size_t i = 0; i < to.size(); ++i)
          ASSERT_EQ(to[i], wanted[i]) << size << " bytes to " << i << " of " << n;
      }
    }
  }
}

TEST_P(CpuRows, PrefetchReachesPastTheEndUnharmed) {
  const char row[3] = {};
  prefetch(row, 4096);
  prefetch(nullptr, 0);
}

// --- Refusals and the choice of the instruction set. ---

TEST_P(CpuRows, RefusesOtherTypes) {
  float out = 0;
  const void* rows[] = {&out};
  const float weight = 1;
  const SumArgs args{.rows = rows, .weights = &weight, .n = 1, .hidden = 1, .out = &out};
  for (DType type : {DType::fp8_e4m3, DType::int32, DType::int64, DType::uint8}) {
    SumArgs in = args;
    in.in = type;
    EXPECT_THROW(weighted_sum(in), Error);
    SumArgs to = args;
    to.out_type = type;
    EXPECT_THROW(weighted_sum(to), Error);
    EXPECT_THROW(from_float(1, &out, type), Error);
    EXPECT_THROW(from_float_row(&out, &weight, 1, type), Error);
    if (type == DType::fp8_e4m3) continue;
    EXPECT_THROW(to_float(&weight, type), Error);
    EXPECT_THROW(to_float_row(&out, &weight, 1, type), Error);
  }
}

TEST(CpuIsa, ForcedIsActive) {
  EXPECT_TRUE(has_isa(Isa::portable));
  EXPECT_TRUE(has_isa(best_isa()));
  for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (has_isa(isa)) {
      force_isa(isa);
      EXPECT_EQ(active_isa(), isa);
    } else {
      EXPECT_THROW(force_isa(isa), Error);
    }
  }
  force_isa(best_isa());
}

// In a process of its own each: the environment is read once.
TEST(CpuIsaDeathTest, TheEnvironmentChooses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto with = [](const char* value, auto&& check) {
    ::setenv("MOELANE_ISA", value, 1);
    std::exit(check() ? 0 : 1);
  };
  for (Isa isa : here()) {
    EXPECT_EXIT(with(std::string(name_of(isa)).c_str(), [&] { return active_isa() == isa; }),
                ::testing::ExitedWithCode(0), "");
  }
  EXPECT_EXIT(with("", [] { return active_isa() == best_isa(); }), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(with("sse9",
                   [] {
                     try {
                       active_isa();
                     } catch (const Error& error) {
                       return error.kind() == ErrorKind::argument &&
                              std::string(error.what()).find("MOELANE_ISA=sse9") != std::string::npos;
                     }
                     return false;
                   }),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace moelane::cpu
