#pragma once

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

// The definition of the row kernels again, and what their tests share.
namespace moelane::cpu {

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

inline std::uint32_t sign_bit(Format f) { return 1U << (f.bits - 1); }

inline bool is_nan_code(std::uint32_t code, Format f) {
  const std::uint32_t rest = code & (sign_bit(f) - 1);
  return f.infinities ? rest > (sign_bit(f) - 1) >> f.fraction << f.fraction : rest == sign_bit(f) - 1;
}

// Exact, and right beyond the largest number: there it goes on as if the exponent did.
inline double value_of(std::uint32_t magnitude_code, Format f) {
  const auto exponent = static_cast<int>(magnitude_code >> f.fraction);
  const auto fraction = static_cast<int>(magnitude_code & ((1U << f.fraction) - 1));
  const int one = 1 << f.fraction;
  return exponent == 0 ? std::ldexp(fraction, 1 - f.bias - f.fraction)
                       : std::ldexp(one + fraction, exponent - f.bias - f.fraction);
}

inline float wanted_float(const void* element, DType type) {
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
inline std::uint16_t nearest_code(float value, DType type) {
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

inline void wanted_element(float value, void* element, DType type) {
  if (type == DType::fp32) {
    if (std::isnan(value)) value = std::bit_cast<float>(0x7FC00000U);
    std::memcpy(element, &value, sizeof value);
  } else {
    const std::uint16_t code = nearest_code(value, type);
    std::memcpy(element, &code, sizeof code);
  }
}

// args.out holds the old values in, the result out.
inline void wanted_sum(const SumArgs& args) {
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

inline void fill(unsigned char* to, std::size_t n, DType type, Data data, std::mt19937_64& random) {
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

inline std::vector<Isa> here() {
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

inline void expect_equal(const Case& c, bool accumulate, Store store, const std::string& what) {
  const Bytes wanted = c.with(wanted_sum, accumulate, store);
  const Bytes got = c.with(weighted_sum, accumulate, store);
  const auto [w, g] = std::mismatch(wanted.begin(), wanted.end(), got.begin());
  ASSERT_EQ(w, wanted.end()) << what << " in " << name_of(c.args.in) << " out " << name_of(c.args.out_type)
                             << " n " << c.args.n << " hidden " << c.args.hidden << " accumulate "
                             << accumulate << ": byte "
                             << (g - got.begin()) - static_cast<std::ptrdiff_t>(c.out_at);
}

}  // namespace moelane::cpu
