#pragma once

#include <bit>
#include <cstdint>

// One element at a time, by integer arithmetic on the bits: right in every floating-point mode. Every NaN
// becomes the canonical one of the target.
namespace moelane::cpu {

inline constexpr std::uint32_t kNanFloat = 0x7FC00000;
inline constexpr std::uint16_t kNanBf16 = 0x7FC0;
inline constexpr std::uint16_t kNanHalf = 0x7E00;

constexpr std::uint32_t magnitude(std::uint32_t bits) { return bits & 0x7FFFFFFF; }

constexpr std::uint32_t canonical(std::uint32_t bits) {
  return magnitude(bits) > 0x7F800000 ? kNanFloat : bits;
}

constexpr std::uint32_t bf16_to_bits(std::uint16_t bf16) { return canonical(std::uint32_t{bf16} << 16); }

// count * 2^unit (modulo 2^32, so that it may be negative) as a float, which is normal for the narrow types'
// denormals; 0 < count < 2^23.
constexpr std::uint32_t units_to_bits(std::uint32_t count, std::uint32_t unit) {
  const auto shift =
      static_cast<std::uint32_t>(std::countl_zero(count)) - 8;  // brings the leading one to bit 23,
  return ((149 + unit - shift) << 23) + (count << shift);       // where it adds 1 to the exponent
}

constexpr std::uint32_t half_to_bits(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t rest = half & 0x7FFFU;
  if (rest > 0x7C00) return kNanFloat;
  if (rest == 0x7C00) return sign | 0x7F800000;
  if (rest >= 0x0400) return sign | ((rest << 13) + ((127U - 15U) << 23));
  if (rest == 0) return sign;
  return sign | units_to_bits(rest, 0U - 24);
}

// OCP E4M3 "fn": exponent bias 7, no infinities, NaN is 0x7F and 0xFF.
constexpr std::uint32_t e4m3_to_bits(std::uint8_t fp8) {
  const std::uint32_t sign = (fp8 & 0x80U) << 24;
  const std::uint32_t rest = fp8 & 0x7FU;
  if (rest == 0x7F) return kNanFloat;
  if (rest >= 0x08) return sign | ((rest << 20) + ((127U - 7U) << 23));
  if (rest == 0) return sign;
  return sign | units_to_bits(rest, 0U - 9);
}

constexpr std::uint16_t bits_to_bf16(std::uint32_t bits) {
  bits = canonical(bits);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

constexpr std::uint16_t bits_to_half(std::uint32_t bits) {
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t rest = magnitude(bits);
  if (rest > 0x7F800000) return kNanHalf;
  if (rest >= 0x47800000) return static_cast<std::uint16_t>(sign | 0x7C00);  // 65536 and above
  if (rest >= 0x38800000) {  // 2^-14, the smallest normal one; a carry out of the fraction is right as it is
    const std::uint32_t biased = rest - ((127U - 15U) << 23);
    return static_cast<std::uint16_t>(sign | ((biased + 0xFFF + ((biased >> 13) & 1)) >> 13));
  }
  if (rest < 0x33000000) return static_cast<std::uint16_t>(sign);  // below 2^-25, half the smallest
  const std::uint32_t fraction = (rest & 0x7FFFFF) | 0x800000;
  const std::uint32_t shift = 126 - (rest >> 23);  // 14 to 24: to units of 2^-24
  const std::uint32_t half = 1U << (shift - 1);
  const std::uint32_t odd = (fraction >> shift) & 1;
  return static_cast<std::uint16_t>(sign | ((fraction + half - 1 + odd) >> shift));
}

}  // namespace moelane::cpu
