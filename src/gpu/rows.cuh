#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/numbers.cuh"
#include "protocol/views.hpp"

// Moving rows: each is read once and written to several places. A warp takes a piece of a row at a time, so that the
// warps of a block share even a single row.
namespace moelane::gpu {

// The rows that a block moves next: row r from from[r] to the places to[r * width ...] that are not null.
struct Batch {
  std::int32_t id[kBatch], key[kBatch], number[kBatch];
  std::byte* to[kBatch];
  std::byte* scales_to[kBatch];
};

__device__ inline uint4 load(const uint4* from) { return __ldcs(from); }
__device__ inline std::uint32_t load(const std::uint32_t* from) { return __ldcs(from); }
__device__ inline std::uint8_t load(const std::uint8_t* from) { return *from; }

// `depth`: vectors that a thread has on their way at a time.
template <class Word, int depth, class From>
__device__ void copy_words(std::int32_t rows, int width, std::byte* const* to, std::int64_t bytes, const From& from) {
  constexpr std::int64_t kStep = 32, kChunk = depth * kStep;
  const std::int64_t words = bytes / static_cast<std::int64_t>(sizeof(Word));
  const auto chunks = static_cast<std::uint32_t>((words + kChunk - 1) / kChunk);
  const std::uint32_t items = static_cast<std::uint32_t>(rows) * chunks;
  for (std::uint32_t item = threadIdx.x / 32; item < items; item += blockDim.x / 32) {
    const std::uint32_t row = item / chunks;
    const std::int64_t i = static_cast<std::int64_t>(item % chunks) * kChunk + threadIdx.x % 32;
    const std::byte* source = from(static_cast<std::int32_t>(row));
    if (source == nullptr) continue;
    const auto* words_from = reinterpret_cast<const Word*>(source);
    Word word[depth];
#pragma unroll
    for (int d = 0; d < depth; ++d) {
      if (i + d * kStep < words) word[d] = load(words_from + i + d * kStep);
    }
    for (int k = 0; k < width; ++k) {
      auto* const place = reinterpret_cast<Word*>(to[row * static_cast<std::uint32_t>(width) + static_cast<std::uint32_t>(k)]);
      if (place == nullptr) continue;
#pragma unroll
      for (int d = 0; d < depth; ++d) {
        if (i + d * kStep < words) place[i + d * kStep] = word[d];
      }
    }
  }
}

// How wide the words may be that rows are copied by: found on the host from every address and stride.
enum class Width : std::int32_t { one = 1, four = 4, sixteen = 16 };

// from(r): where row r is read, or null. For the whole block; nothing is written to null.
template <int depth, class From>
__device__ void copy_rows(Width by, std::int32_t rows, int width, std::byte* const* to, std::int64_t bytes,
                          const From& from) {
  switch (by) {
    case Width::sixteen:
      return copy_words<uint4, depth>(rows, width, to, bytes, from);
    case Width::four:
      return copy_words<std::uint32_t, depth>(rows, width, to, bytes, from);
    default:
      return copy_words<std::uint8_t, depth>(rows, width, to, bytes, from);
  }
}

// Scales of one token, `columns` of `size` bytes, from and to strided places; packed ones go as a row.
struct Scales {
  std::int32_t columns = 0, size = 0;
  std::int64_t from_stride = 0, to_stride = 0;
  Width by = Width::one;
};
template <class From>
__device__ void copy_all_scales(const Scales& scales, std::int32_t rows, int width, std::byte* const* to,
                                const From& from) {
  if (scales.columns == 0) return;
  if (scales.from_stride == scales.size && scales.to_stride == scales.size) {
    return copy_rows<1>(scales.by, rows, width, to, static_cast<std::int64_t>(scales.columns) * scales.size, from);
  }
  for (std::int32_t row = static_cast<std::int32_t>(threadIdx.x / 32); row < rows;
       row += static_cast<std::int32_t>(blockDim.x / 32)) {
    const std::byte* source = from(row);
    if (source == nullptr) continue;
    for (std::int32_t c = static_cast<std::int32_t>(threadIdx.x % 32); c < scales.columns; c += 32) {
      for (int k = 0; k < width; ++k) {
        std::byte* const place = to[row * width + k];
        if (place == nullptr) continue;
        for (std::int32_t b = 0; b < scales.size; ++b) {
          place[c * scales.to_stride + b] = source[c * scales.from_stride + b];
        }
      }
    }
  }
}

}  // namespace moelane::gpu
