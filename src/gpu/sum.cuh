#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "moelane/dtype.hpp"

// The weighted sum of design section 1, bit for bit as on the CPU: from +0, a fused multiply-add in float for
// each row in order, then the old output, then one rounding; NaN has one form.
namespace moelane::gpu {

// A row that counts: where it lies (null: it does not count) and its weight.
struct alignas(16) Term {
  const std::byte* row;
  float weight;
};

template <DType type>
struct Element;
template <>
struct Element<DType::bf16> {
  using Type = std::uint16_t;
  __device__ static float value(Type bits) { return __uint_as_float(static_cast<std::uint32_t>(bits) << 16); }
  __device__ static Type rounded(float v) {
    const std::uint16_t bits = __bfloat16_as_ushort(__float2bfloat16_rn(v));
    return bits == 0x7FFF ? 0x7FC0 : bits;
  }
};
template <>
struct Element<DType::fp16> {
  using Type = std::uint16_t;
  __device__ static float value(Type bits) { return __half2float(__ushort_as_half(bits)); }
  __device__ static Type rounded(float v) {
    return v != v ? std::uint16_t{0x7E00} : __half_as_ushort(__float2half_rn(v));
  }
};
template <>
struct Element<DType::fp32> {
  using Type = float;
  __device__ static float value(Type v) { return v; }
  __device__ static Type rounded(float v) { return v != v ? __uint_as_float(0x7FC00000U) : v; }
};

// N elements that lie side by side, as one vector of memory.
template <DType type, int n>
struct alignas(sizeof(typename Element<type>::Type) * n > 16
                   ? 16
                   : sizeof(typename Element<type>::Type) * n) Pack {
  typename Element<type>::Type element[n];
};

// Single elements may lie anywhere, so they are read and written byte by byte.
template <DType type, int n>
__device__ Pack<type, n> read_pack(const std::byte* from) {
  if constexpr (n > 1) {
    return *reinterpret_cast<const Pack<type, n>*>(from);
  } else {
    Pack<type, n> pack;
#pragma unroll
    for (std::size_t b = 0; b < sizeof pack; ++b) reinterpret_cast<std::byte*>(&pack)[b] = from[b];
    return pack;
  }
}
template <DType type, int n>
__device__ void write_pack(std::byte* to, const Pack<type, n>& pack) {
  if constexpr (n > 1) {
    *reinterpret_cast<Pack<type, n>*>(to) = pack;
  } else {
#pragma unroll
    for (std::size_t b = 0; b < sizeof pack; ++b) to[b] = reinterpret_cast<const std::byte*>(&pack)[b];
  }
}

template <DType type, int n>
__device__ void write_sum(std::byte* out, const float (&sum)[n], bool accumulate) {
  Pack<type, n> result;
  if (accumulate) {
    const Pack<type, n> old = read_pack<type, n>(out);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      result.element[i] = Element<type>::rounded(__fadd_rn(sum[i], Element<type>::value(old.element[i])));
    }
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) result.element[i] = Element<type>::rounded(sum[i]);
  }
  write_pack<type, n>(out, result);
}

// Elements i * n ... of one output row, from `topk` terms. Eight rows are on their way at a time.
template <DType type, int n>
__device__ void sum_pack(const Term* terms, int topk, std::int64_t i, float (&sum)[n]) {
  constexpr int kTogether = 8;
#pragma unroll
  for (int e = 0; e < n; ++e) sum[e] = 0.0F;
  for (int first = 0; first < topk; first += kTogether) {
    Pack<type, n> values[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const std::byte* row = first + j < topk ? terms[first + j].row : nullptr;
      if (row != nullptr)
        values[j] = read_pack<type, n>(row + i * static_cast<std::int64_t>(sizeof values[j]));
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (first + j >= topk || terms[first + j].row == nullptr) continue;
      const float weight = terms[first + j].weight;
#pragma unroll
      for (int e = 0; e < n; ++e)
        sum[e] = __fmaf_rn(weight, Element<type>::value(values[j].element[e]), sum[e]);
    }
  }
}

// What a warp sums at a time: 32 packs of n elements of a row.
template <int n>
__device__ std::int32_t chunks_of(std::int64_t hidden) {
  return static_cast<std::int32_t>((hidden + n * 32 - 1) / (n * 32));
}

// For a warp: chunk `chunk` of one output row, written to `copies` addresses.
template <DType in, int n>
__device__ void sum_chunk(const Term* terms, int topk, std::int64_t hidden, std::int32_t chunk, DType out,
                          bool accumulate, std::byte* const* to_rows, int copies) {
  const std::int64_t i = static_cast<std::int64_t>(chunk) * 32 + threadIdx.x % 32;
  if (i * n >= hidden) return;
  float sum[n];
  sum_pack<in, n>(terms, topk, i, sum);
  for (int c = 0; c < copies; ++c) {
    std::byte* const to = to_rows[c] + i * n * static_cast<std::int64_t>(size_of(out));
    if (out == DType::bf16) {
      write_sum<DType::bf16, n>(to, sum, accumulate);
    } else if (out == DType::fp16) {
      write_sum<DType::fp16, n>(to, sum, accumulate);
    } else {
      write_sum<DType::fp32, n>(to, sum, accumulate);
    }
  }
}

}  // namespace moelane::gpu
