#pragma once

#include <cstdint>

#include "protocol/lane.hpp"
#include "transport/device_transport.cuh"

// What the host gives every kernel of a lane, and what the two share.
namespace moelane::gpu {

enum class CallKind : std::int32_t {
  dispatch_send,
  dispatch_recv,
  combine_send,
  combine_recv,
  dispatch,
  combine
};
inline constexpr int kCallKinds = 6;

// Of a report: whether it makes a step invalid or ends the engine.
enum class Severity : std::int32_t { mild, fatal };
inline constexpr int kSeverities = 2;

// A report on its way to the host, in host memory. The kernel writes it while `filled` is 0; the host reads
// it and clears `filled`.
struct ReportSlot {
  std::uint32_t filled;
  CallKind call;
  std::uint64_t step;
  Report report;
};

// What the blocks of a lane's kernels share, in the card's memory.
struct SharedState {
  std::uint32_t blocks_done;           // of the running kernel; wraps to 0
  std::uint64_t claimed[kSeverities];  // the last call that has reported
  std::uint32_t first_bad;      // the first bad id of the running dispatch as token * topk + k, or kNone
  std::uint32_t first_dropped;  // direct: the first of the own rows that a peer had no room for, or kNone
};
inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

// When a block did what, in nanoseconds of the card's clock.
struct Stamp {
  std::uint64_t step, begin, wait_begin, wait_end, end, bytes;
};

// Divides non-negative numbers below 2^27 by topk, of at most 32: a multiplication where a division would
// take twenty instructions. Kernels that last microseconds wait for their instructions as for their data.
struct TopkDivider {
  std::int32_t topk;
  std::uint32_t inverse;
  __host__ __device__ explicit TopkDivider(std::int32_t k)
      : topk(k),
        inverse(static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + static_cast<std::uint64_t>(k) - 1) /
                                           static_cast<std::uint64_t>(k))) {}
  __device__ std::int32_t quotient(std::int32_t n) const {
    return topk == 1 ? n : static_cast<std::int32_t>(__umulhi(static_cast<std::uint32_t>(n), inverse));
  }
  __device__ std::int32_t remainder(std::int32_t n) const { return n - quotient(n) * topk; }
};

// Where an expert is, in one word: its rank and its number there.
__host__ __device__ constexpr std::uint32_t where_word(std::int32_t rank, std::int32_t local) {
  return static_cast<std::uint32_t>(rank) << 16 | static_cast<std::uint32_t>(local);
}
__device__ constexpr std::int32_t rank_of(std::uint32_t where) {
  return static_cast<std::int32_t>(where >> 16);
}
__device__ constexpr std::int32_t local_of(std::uint32_t where) {
  return static_cast<std::int32_t>(where & 0xFFFF);
}

template <DeviceTransport T>
struct CallContext {
  Lane<T> lane;
  TopkDivider topk_divider;
  CallKind call;
  SharedState* shared_state;
  ReportSlot* report_slots;    // [kSeverities]
  std::uint32_t* dead;         // of the engine: set when it cannot go on
  Stamp* stamps;               // [blocks], or null
  const std::uint32_t* where;  // [experts]: where_word()
  std::int32_t* scratch;       // [blocks][2][keys] where shared memory is too small, else null
};

}  // namespace moelane::gpu
