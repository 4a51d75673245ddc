#pragma once

#include <cstdint>

#include "core/hd.hpp"

// Signal words. A word carries an epoch, which only grows, and a payload: 40 bits of epoch above 24 bits of
// payload. Counters (rows that arrived one by one) use all 64 bits. Nothing is ever reset, so nothing races
// with a reset.
namespace moelane {

inline constexpr int kPayloadBits = 24;
inline constexpr std::uint64_t kPayloadMask = (std::uint64_t{1} << kPayloadBits) - 1;
inline constexpr std::uint64_t kEpochMask = ~kPayloadMask;
inline constexpr std::uint64_t kCounterMask = ~std::uint64_t{0};

MOELANE_HD constexpr std::uint64_t pack(std::uint64_t epoch, std::uint64_t payload) {
  return (epoch << kPayloadBits) | (payload & kPayloadMask);
}
MOELANE_HD constexpr std::uint64_t epoch_of(std::uint64_t word) { return word >> kPayloadBits; }
MOELANE_HD constexpr std::uint64_t payload_of(std::uint64_t word) { return word & kPayloadMask; }

// Whether `word` has come to `needed`, in rolling arithmetic: true up to half the range ahead. `mask` selects
// the part that counts (kEpochMask or kCounterMask); `needed` has no bits outside of it.
MOELANE_HD constexpr bool reached(std::uint64_t word, std::uint64_t needed, std::uint64_t mask) {
  return static_cast<std::int64_t>((word & mask) - needed) >= 0;
}

// The way a step takes, as the dispatch and combine words carry it (2 bits above 22 bits of payload).
enum class WireWay : std::uint8_t { none = 0, put = 1, direct = 2 };
inline constexpr int kWayShift = 22;
inline constexpr std::uint64_t kTokenMask = (std::uint64_t{1} << kWayShift) - 1;

// dispatch word: way and the group's number of tokens.
MOELANE_HD constexpr std::uint64_t dispatch_payload(WireWay way, std::int32_t tokens) {
  return (static_cast<std::uint64_t>(way) << kWayShift) | (static_cast<std::uint64_t>(tokens) & kTokenMask);
}
// combine word: way, whether the rank dropped rows for want of capacity, and what identifies its expert rows.
inline constexpr std::uint64_t kDroppedBit = std::uint64_t{1} << 21;
inline constexpr std::uint64_t kFingerprintMask = kDroppedBit - 1;
MOELANE_HD constexpr std::uint64_t combine_payload(WireWay way, bool dropped, std::uint64_t fingerprint) {
  return (static_cast<std::uint64_t>(way) << kWayShift) | (dropped ? kDroppedBit : 0) |
         (fingerprint & kFingerprintMask);
}
MOELANE_HD constexpr WireWay way_of(std::uint64_t word) {
  return static_cast<WireWay>((word >> kWayShift) & 3);
}
MOELANE_HD constexpr std::int32_t tokens_of(std::uint64_t word) {
  return static_cast<std::int32_t>(word & kTokenMask);
}

}  // namespace moelane
