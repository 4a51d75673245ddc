#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/bulk.cuh"
#include "gpu/numbers.cuh"
#include "protocol/views.hpp"

// Moving rows: each is read once and written to several addresses. A warp takes a piece of a row at a time,
// so that the warps of a block share even a single row.
namespace moelane::gpu {

// What a block moves next: its entries, their numbers, and where their rows and scales go (null: nowhere).
struct Batch {
  std::int32_t id[kBatch], key[kBatch], number[kBatch];
  std::byte* to[kBatch];
  std::byte* scales_to[kBatch];
};

__device__ inline uint4 load(const uint4* from) { return __ldcs(from); }
__device__ inline std::uint32_t load(const std::uint32_t* from) { return __ldcs(from); }
__device__ inline std::uint8_t load(const std::uint8_t* from) { return *from; }

// Where rows go: row r, of `bytes` bytes, to the addresses to[r * fanout ...].
struct RowDestinations {
  std::byte* const* to;
  std::int64_t bytes;
};

// Copies rows and whatever else goes with each (packed scales), word by word. `depth`: words that a thread
// has on their way at a time.
template <class Word, int depth, class From, class AlsoFrom>
__device__ void copy_words(std::int32_t rows, int fanout, const RowDestinations& destinations,
                           const From& from, const RowDestinations& also, const AlsoFrom& also_from) {
  constexpr std::int64_t kStep = 32, kChunk = depth * kStep, kSize = sizeof(Word);
  const auto pieces = static_cast<std::uint32_t>((destinations.bytes / kSize + kChunk - 1) / kChunk);
  const auto also_pieces = static_cast<std::uint32_t>((also.bytes / kSize + kChunk - 1) / kChunk);
  const std::uint32_t items = static_cast<std::uint32_t>(rows) * (pieces + also_pieces);
#pragma unroll 1
  for (std::uint32_t item = threadIdx.x / 32; item < items; item += blockDim.x / 32) {
    const std::uint32_t row = item / (pieces + also_pieces), piece = item % (pieces + also_pieces);
    const bool other = piece >= pieces;
    const std::byte* source =
        other ? also_from(static_cast<std::int32_t>(row)) : from(static_cast<std::int32_t>(row));
    if (source == nullptr) continue;
    const std::int64_t words = (other ? also.bytes : destinations.bytes) / kSize;
    const std::int64_t i =
        static_cast<std::int64_t>(other ? piece - pieces : piece) * kChunk + threadIdx.x % 32;
    const auto* words_from = reinterpret_cast<const Word*>(source);
    std::byte* const* to = (other ? also.to : destinations.to) + row * static_cast<std::uint32_t>(fanout);
    Word word[depth];
#pragma unroll
    for (int d = 0; d < depth; ++d) {
      if (i + d * kStep < words) word[d] = load(words_from + i + d * kStep);
    }
    for (int k = 0; k < fanout; ++k) {
      auto* const to_row = reinterpret_cast<Word*>(to[k]);
      if (to_row == nullptr) continue;
#pragma unroll
      for (int d = 0; d < depth; ++d) {
        if (i + d * kStep < words) to_row[i + d * kStep] = word[d];
      }
    }
  }
}

// How wide the words may be by which rows are copied: found on the host from every address and stride.
enum class Width : std::int32_t { one = 1, four = 4, sixteen = 16 };

// Narrow words are rare, and out of the way of the wide ones.
template <class Word, class From, class AlsoFrom>
__device__ __noinline__ void copy_narrow_words(std::int32_t rows, int fanout,
                                               const RowDestinations& destinations, const From& from,
                                               const RowDestinations& also, const AlsoFrom& also_from) {
  copy_words<Word, 1>(rows, fanout, destinations, from, also, also_from);
}

template <int depth, class From, class AlsoFrom>
__device__ void copy_by(Width width, std::int32_t rows, int fanout, const RowDestinations& destinations,
                        const From& from, const RowDestinations& also, const AlsoFrom& also_from) {
  if (width == Width::sixteen) {
    copy_words<uint4, depth>(rows, fanout, destinations, from, also, also_from);
  } else if (width == Width::four) {
    copy_narrow_words<std::uint32_t>(rows, fanout, destinations, from, also, also_from);
  } else {
    copy_narrow_words<std::uint8_t>(rows, fanout, destinations, from, also, also_from);
  }
}

// from(r): where row r is read, or null. For the whole block; nothing is written to null.
template <int depth, class From>
__device__ void copy_rows(Width width, std::int32_t rows, int fanout, const RowDestinations& destinations,
                          const From& from) {
  copy_by<depth>(width, rows, fanout, destinations, from, RowDestinations{nullptr, 0}, from);
}

// Scales of one token, `columns` of `size` bytes, from and to strided addresses.
struct Scales {
  std::int32_t columns = 0, size = 0;
  std::int64_t from_stride = 0, to_stride = 0;
  Width width = Width::one;
};

template <class ScalesFrom>
__device__ __noinline__ void copy_strided(const Scales& scales, std::int32_t rows, int fanout,
                                          std::byte* const* to, const ScalesFrom& from) {
#pragma unroll 1
  for (std::int32_t row = static_cast<std::int32_t>(threadIdx.x / 32); row < rows;
       row += static_cast<std::int32_t>(blockDim.x / 32)) {
    const std::byte* source = from(row);
    if (source == nullptr) continue;
#pragma unroll 1
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x % 32); i < scales.columns * fanout; i += 32) {
      const std::int32_t c = i / fanout, k = i - c * fanout;
      std::byte* const to_scales = to[row * fanout + k];
      if (to_scales == nullptr) continue;
      for (std::int32_t b = 0; b < scales.size; ++b)
        to_scales[c * scales.to_stride + b] = source[c * scales.from_stride + b];
    }
  }
}

// Whether scales are laid out alike on both sides, and as well aligned as the rows, so that they go along.
__host__ __device__ inline bool go_along(const Scales& scales, Width width) {
  return scales.from_stride == scales.size && scales.to_stride == scales.size && scales.width >= width;
}

// Rows with their scales: by bulk where it has slots, else word by word; scales that do not go along, element
// by element.
template <int depth, class From, class ScalesFrom>
__device__ void move_rows(BulkRows& bulk, bool begun, Width width, std::int32_t rows, int fanout,
                          const RowDestinations& destinations, const From& from, const Scales& scales,
                          std::byte* const* scales_to, const ScalesFrom& scales_from) {
  const bool along = go_along(scales, width);
  if (bulk.any()) {
    bulk.move(rows, fanout, destinations.to, scales_to, from, scales_from, begun);
  } else {
    const std::int64_t bytes = along ? static_cast<std::int64_t>(scales.columns) * scales.size : 0;
    copy_by<depth>(width, rows, fanout, destinations, from, RowDestinations{scales_to, bytes}, scales_from);
  }
  if (scales.columns != 0 && !along) copy_strided(scales, rows, fanout, scales_to, scales_from);
}

}  // namespace moelane::gpu
