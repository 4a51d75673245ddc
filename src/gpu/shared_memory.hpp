#pragma once

#include <cstddef>
#include <cstdint>

#include "core/layout.hpp"

// What a block's shared memory holds: the tables (tables.cuh: for each expert where it is; two counters for
// each key), then slots of rows for the bulk copy engine (bulk.cuh).
namespace moelane::gpu {

// In words of 32 bits. Keys are experts and, behind them, ranks.
MOELANE_HD constexpr std::int32_t counter_words(const Shape& shape) {
  return 2 * (shape.experts + shape.ranks);
}
MOELANE_HD constexpr std::int32_t table_words(const Shape& shape) {
  return shape.experts + counter_words(shape);
}

// Tables that take more lie in the card's memory.
inline constexpr std::size_t kMostTableBytes = 128 * 1024;
// More than any kernel that moves rows declares for itself.
inline constexpr std::int64_t kKernelsOwnShared = 40 * 1024;
// Rows of this many bytes in flight keep the memory busy. A block that asked for more would wait until
// kernels of another division of shared memory and cache have left its multiprocessor: 5 us were measured.
inline constexpr std::int64_t kEnoughBulk = 64 * 1024;

}  // namespace moelane::gpu
