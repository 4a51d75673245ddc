#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "moelane/config.hpp"

// The reference's own conversions, by integer arithmetic on the bits: independent of the library's. The inner
// loops run over a block of elements of fixed length, so that the compiler vectorises them.
#define MOELANE_INLINE [[gnu::always_inline]] inline

namespace moelane::tools::blocks {

constexpr int kBlock = 128;
using Block = std::array<float, kBlock>;

// --- Conversions. ---

// The float32 bits of a number with `fraction_bits` and the exponent bias `bias`, without its sign.
constexpr std::uint32_t decoded(std::uint32_t code, int fraction_bits, int bias) {
  std::uint32_t fraction = code & ((1U << fraction_bits) - 1);
  std::int32_t exponent = static_cast<std::int32_t>(code >> fraction_bits);
  if (exponent == 0) {
    if (fraction == 0) return 0;
    for (exponent = 1; fraction >> fraction_bits == 0; --exponent) fraction <<= 1;
    fraction &= (1U << fraction_bits) - 1;
  }
  return static_cast<std::uint32_t>(exponent - bias + 127) << 23 | fraction << (23 - fraction_bits);
}

constexpr std::uint32_t fp8_bits(std::uint32_t code) {
  const std::uint32_t sign = (code & 0x80) << 24;
  return (code & 0x7F) == 0x7F ? sign | 0x7FC00000 : sign | decoded(code & 0x7F, 3, 7);
}
constexpr std::uint32_t fp16_bits(std::uint32_t code) {
  const std::uint32_t sign = (code & 0x8000) << 16, rest = code & 0x7FFF;
  return rest >= 0x7C00 ? sign | 0x7F800000 | (rest & 0x3FF) << 13 : sign | decoded(rest, 10, 15);
}

struct Tables {
  std::array<float, 256> fp8;
  std::array<float, 65536> fp16;
  Tables() {
    for (std::uint32_t c = 0; c < fp8.size(); ++c) fp8[c] = std::bit_cast<float>(fp8_bits(c));
    for (std::uint32_t c = 0; c < fp16.size(); ++c) fp16[c] = std::bit_cast<float>(fp16_bits(c));
  }
};
inline const Tables& tables() {
  static const Tables all;
  return all;
}

MOELANE_INLINE bool is_nan(std::uint32_t bits) { return (bits & 0x7FFFFFFF) > 0x7F800000; }

// Divides by 2^shift, to the nearest, in a tie to the even quotient; 1 <= shift <= 31.
MOELANE_INLINE std::uint32_t nearest(std::uint32_t value, std::uint32_t shift) {
  const std::uint32_t quotient = value >> shift, rest = value - (quotient << shift), half = 1U << (shift - 1);
  return quotient + (rest > half || (rest == half && (quotient & 1) != 0) ? 1U : 0U);
}

MOELANE_INLINE std::uint32_t to_bf16(std::uint32_t bits) {
  return is_nan(bits) ? 0x7FC0U : nearest(bits, 16);
}

MOELANE_INLINE std::uint32_t to_fp16(std::uint32_t bits) {
  const std::uint32_t sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 0xFF;
  const std::uint32_t number = (bits & 0x7FFFFF) | 0x800000;  // times 2^(exponent - 150)
  // From exponent 113 on fp16 has a leading one too, whose place in the code counts as a step of the
  // exponent.
  const std::uint32_t above = exponent > 112 ? exponent - 113 : 0;
  const std::uint32_t normal = nearest(number, 13) + (std::min(above, 31U) << 10);
  const std::uint32_t shift = std::min(126U - std::min(exponent, 112U), 31U);
  const std::uint32_t code = exponent > 112 ? std::min(normal, 0x7C00U) : nearest(number, shift);
  return is_nan(bits) ? 0x7E00U : sign | code;
}

// --- Blocks. ---

template <class Element>
MOELANE_INLINE void fetch(const std::byte* from, int n, std::array<Element, kBlock>& codes) {
  codes = {};
  std::memcpy(codes.data(), from, static_cast<std::size_t>(n) * sizeof(Element));
}

MOELANE_INLINE void read(DType type, const std::byte* row, int first, int n, Block& to) {
  const std::byte* from = row + static_cast<std::size_t>(first) * size_of(type);
  if (type == DType::fp8_e4m3) {
    std::array<std::uint8_t, kBlock> codes;
    fetch(from, n, codes);
    const float* table = tables().fp8.data();
    for (std::size_t j = 0; j < kBlock; ++j) to[j] = table[codes[j]];
  } else if (type == DType::fp32) {
    fetch(from, n, to);
  } else {
    std::array<std::uint16_t, kBlock> codes;
    fetch(from, n, codes);
    if (type == DType::fp16) {
      const float* table = tables().fp16.data();
      for (std::size_t j = 0; j < kBlock; ++j) to[j] = table[codes[j]];
    } else {
      for (std::size_t j = 0; j < kBlock; ++j) to[j] = std::bit_cast<float>(std::uint32_t{codes[j]} << 16);
    }
  }
}

MOELANE_INLINE void write(DType type, const Block& from, std::byte* row, int first, int n) {
  std::byte* to = row + static_cast<std::size_t>(first) * size_of(type);
  if (type == DType::fp32) {
    std::array<std::uint32_t, kBlock> codes;
    for (std::size_t j = 0; j < kBlock; ++j) {
      const auto bits = std::bit_cast<std::uint32_t>(from[j]);
      codes[j] = is_nan(bits) ? 0x7FC00000 : bits;
    }
    std::memcpy(to, codes.data(), static_cast<std::size_t>(n) * 4);
    return;
  }
  std::array<std::uint16_t, kBlock> codes;
  for (std::size_t j = 0; j < kBlock; ++j) {
    const auto bits = std::bit_cast<std::uint32_t>(from[j]);
    codes[j] = static_cast<std::uint16_t>(type == DType::bf16 ? to_bf16(bits) : to_fp16(bits));
  }
  std::memcpy(to, codes.data(), static_cast<std::size_t>(n) * 2);
}

// Rounds to `type` and back.
MOELANE_INLINE void round(DType type, Block& block) {
  if (type == DType::bf16) {
    for (float& v : block) v = std::bit_cast<float>(to_bf16(std::bit_cast<std::uint32_t>(v)) << 16);
  } else if (type == DType::fp16) {
    const float* table = tables().fp16.data();
    for (float& v : block) v = table[to_fp16(std::bit_cast<std::uint32_t>(v))];
  }
}

MOELANE_INLINE void add_times(float weight, const Block& row, Block& sum) {
  for (std::size_t j = 0; j < kBlock; ++j) sum[j] = __builtin_fmaf(weight, row[j], sum[j]);
}

}  // namespace moelane::tools::blocks
