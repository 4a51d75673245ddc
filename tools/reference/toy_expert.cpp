#include "reference/toy_expert.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

// Rows are worked on in blocks of float32: loops of a fixed length, which the compiler vectorises.
#define MOELANE_INLINE [[gnu::always_inline]] inline

namespace moelane::tools {
namespace {

constexpr int kBlock = 128;
struct Block {
  alignas(64) float v[kBlock];
};

MOELANE_INLINE float as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
MOELANE_INLINE std::uint32_t as_bits(float value) { return std::bit_cast<std::uint32_t>(value); }

template <DType type>
struct Code {
  using Type = std::uint16_t;
};
template <>
struct Code<DType::fp8_e4m3> {
  using Type = std::uint8_t;
};
template <>
struct Code<DType::fp32> {
  using Type = std::uint32_t;
};

template <DType type>
MOELANE_INLINE float widened(std::uint32_t code) {
  if constexpr (type == DType::fp32) return as_float(code);
  if constexpr (type == DType::bf16) return as_float(code << 16);
  // The denormals of the others are normal numbers in float32: the fraction, converted, times its unit.
  constexpr bool half = type == DType::fp16;
  const std::uint32_t rest = code & (half ? 0x7FFFU : 0x7FU);
  const std::uint32_t normal = half ? (rest << 13) + (112U << 23) : (rest << 20) + (120U << 23);
  const std::uint32_t special = half ? rest << 13 | 0x7F800000U : 0x7FC00000U;
  const float unit = half ? 0x1p-24F : 0x1p-9F;
  const std::uint32_t small = as_bits(static_cast<float>(static_cast<std::int32_t>(rest)) * unit);
  // Chosen by masks: the compiler would make branches of conditional expressions, and not vectorise.
  const std::uint32_t is_small = rest < (half ? 0x400U : 8U) ? ~0U : 0U;
  const std::uint32_t is_special = rest >= (half ? 0x7C00U : 0x7FU) ? ~0U : 0U;
  const std::uint32_t magnitude =
      (small & is_small) | (special & is_special) | (normal & ~(is_small | is_special));
  return as_float(magnitude | (code & (half ? 0x8000U : 0x80U)) << (half ? 16 : 24));
}

// To nearest even; NaN is canonical.
template <DType type>
MOELANE_INLINE std::uint32_t narrowed(float value) {
  const std::uint32_t bits = as_bits(value), rest = bits & 0x7FFFFFFF;
  if constexpr (type == DType::fp32) return rest > 0x7F800000 ? 0x7FC00000U : bits;
  const std::uint32_t is_nan = rest > 0x7F800000 ? ~0U : 0U;
  if constexpr (type == DType::bf16) {
    return (0x7FC0U & is_nan) | ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & ~is_nan);
  }
  // The last bit of 1/2 + a small number is 2^-24, the unit of fp16's denormals: this addition rounds to it.
  const std::uint32_t small = as_bits(as_float(rest) + 0.5F) - as_bits(0.5F);
  const std::uint32_t normal = (rest + 0xFFF + (rest >> 13 & 1) - (112U << 23)) >> 13;
  const std::uint32_t is_small = rest < 0x38800000 ? ~0U : 0U, is_large = rest >= 0x47800000 ? ~0U : 0U;
  const std::uint32_t magnitude =
      (small & is_small) | (0x7C00U & is_large) | (normal & ~(is_small | is_large));
  return (0x7E00U & is_nan) | (((bits >> 16 & 0x8000) | magnitude) & ~is_nan);
}

template <DType type>
MOELANE_INLINE void read_as(const std::byte* row, int first, int n, Block& to) {
  using Element = typename Code<type>::Type;
  Element codes[kBlock] = {};
  std::memcpy(codes, row + static_cast<std::size_t>(first) * sizeof(Element),
              static_cast<std::size_t>(n) * sizeof(Element));
  for (int j = 0; j < kBlock; ++j) to.v[j] = widened<type>(codes[j]);
}

MOELANE_INLINE void read(DType type, const std::byte* row, int first, int n, Block& to) {
  if (type == DType::fp8_e4m3) return read_as<DType::fp8_e4m3>(row, first, n, to);
  if (type == DType::bf16) return read_as<DType::bf16>(row, first, n, to);
  if (type == DType::fp16) return read_as<DType::fp16>(row, first, n, to);
  read_as<DType::fp32>(row, first, n, to);
}

template <DType type>
MOELANE_INLINE void write_as(std::byte* row, int first, int n, const Block& from) {
  using Element = typename Code<type>::Type;
  Element codes[kBlock];
  for (int j = 0; j < kBlock; ++j) codes[j] = static_cast<Element>(narrowed<type>(from.v[j]));
  std::memcpy(row + static_cast<std::size_t>(first) * sizeof(Element), codes,
              static_cast<std::size_t>(n) * sizeof(Element));
}

MOELANE_INLINE void write(DType type, std::byte* row, int first, int n, const Block& from) {
  if (type == DType::bf16) return write_as<DType::bf16>(row, first, n, from);
  if (type == DType::fp16) return write_as<DType::fp16>(row, first, n, from);
  write_as<DType::fp32>(row, first, n, from);
}

template <DType type>
MOELANE_INLINE void round_as(Block& block) {
  for (float& value : block.v) value = widened<type>(narrowed<type>(value));
}

MOELANE_INLINE void round_to(DType type, Block& block) {
  if (type == DType::bf16) round_as<DType::bf16>(block);
  if (type == DType::fp16) round_as<DType::fp16>(block);
}

// The scale of each element of a block; 1 where scales are not given, or are not fp32.
MOELANE_INLINE void spread(const Config& config, const std::byte* scales, int first, int n, Block& to) {
  std::fill(std::begin(to.v), std::end(to.v), 1.0F);
  if (scales == nullptr || config.scale_columns == 0 || config.scale_bytes != 4) return;
  const int each = (config.hidden + config.scale_columns - 1) / config.scale_columns;
  for (int j = 0; j < n;) {
    const int column = (first + j) / each;
    const int end = std::min(n, (column + 1) * each - first);
    float scale;
    std::memcpy(&scale, scales + static_cast<std::size_t>(column) * 4, 4);
    std::fill(to.v + j, to.v + end, scale);
    j = end;
  }
}

MOELANE_INLINE float factor(std::int32_t expert) {
  return as_float(static_cast<std::uint32_t>(125 + expert % 5) << 23);
}

MOELANE_INLINE void multiply(const Block& x, const Block& scale, float by, Block& y) {
  for (int j = 0; j < kBlock; ++j) y.v[j] = x.v[j] * (by * scale.v[j]);
}

struct Job {
  const Config& config;
  const std::int32_t *experts, *ids;  // ids null: experts[0] alone, without a weight
  const float* weights;
  const std::byte *x, *scales;
  std::byte* y;
};

MOELANE_INLINE void work(const Job& job) {
  const Config& config = job.config;
  for (int first = 0; first < config.hidden; first += kBlock) {
    const int n = std::min(kBlock, config.hidden - first);
    Block x, scale, y;
    read(config.dtype, job.x, first, n, x);
    spread(config, job.scales, first, n, scale);
    if (job.ids == nullptr) {
      multiply(x, scale, factor(job.experts[0]), y);
      write(config.combine_dtype, job.y, first, n, y);
      continue;
    }
    Block sum{};
    for (int k = 0; k < config.topk; ++k) {
      if (job.ids[k] < 0) continue;
      multiply(x, scale, factor(job.experts[job.ids[k]]), y);
      round_to(config.combine_dtype, y);
      const float weight = job.weights[k];
      for (int j = 0; j < kBlock; ++j) sum.v[j] = __builtin_fmaf(weight, y.v[j], sum.v[j]);
    }
    write(config.combine_dtype, job.y, first, n, sum);
  }
}

// Twice, for machines with and without fused multiply-adds; the bits are the same. Chosen by hand and not by
// target_clones, whose choice runs before a sanitizer is ready for it.
void work_plainly(const Job& job) { work(job); }
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void work_with_avx2(const Job& job) { work(job); }

void run(const Job& job) {
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  avx2 ? work_with_avx2(job) : work_plainly(job);
}
#else
void run(const Job& job) { work_plainly(job); }
#endif

}  // namespace

void toy_expert(const Config& config, std::int32_t expert, const std::byte* x, const std::byte* scales,
                std::byte* y) {
  run({config, &expert, nullptr, nullptr, x, scales, y});
}

void toy_experts_ranked(const Config& config, const std::int32_t* experts, const std::int32_t* ids,
                        const float* weights, const std::byte* x, const std::byte* scales, std::byte* y) {
  run({config, experts, ids, weights, x, scales, y});
}

}  // namespace moelane::tools
