#include "reference/expected_combine.hpp"

#include <algorithm>
#include <cstring>

#include "reference/float_blocks.hpp"

namespace moelane::tools {
namespace {

using namespace blocks;

struct Job {
  const Config& config;
  std::span<const std::int32_t> rank_of;
  const GroupStep& group;
  const std::byte* old;
  const std::vector<bool>& dropped;
  std::vector<std::byte>& out;
};

MOELANE_INLINE void read_scales(const Config& config, const std::byte* scales, int first, int n, Block& to) {
  to.fill(1.0F);
  if (config.scale_columns == 0 || config.scale_bytes != 4) return;
  const int each = (config.hidden + config.scale_columns - 1) / config.scale_columns;
  int column = first / each, left = each - first % each;
  for (int j = 0; j < n; ++j, --left) {
    if (left == 0) ++column, left = each;
    std::memcpy(&to[static_cast<std::size_t>(j)], scales + column * 4, 4);
  }
}

// What the toy expert answers: x * 2^(e mod 5 - 2) * scale, rounded once.
MOELANE_INLINE void answer(const Config& config, std::int32_t expert, const Block& x, const Block& scales,
                           Block& y) {
  constexpr float kFactors[] = {0.25F, 0.5F, 1.0F, 2.0F, 4.0F};
  const float factor = kFactors[expert % 5];
  for (std::size_t j = 0; j < kBlock; ++j) y[j] = x[j] * (factor * scales[j]);
  round(config.combine_dtype, y);
}

MOELANE_INLINE void combine(const Job& job) {
  const Config& c = job.config;
  const bool by_rank = c.layout == Layout::ranked || c.partial_sums;
  const auto topk = static_cast<std::size_t>(c.topk), hidden = static_cast<std::size_t>(c.hidden);
  for (std::size_t t = 0; t < static_cast<std::size_t>(job.group.tokens); ++t) {
    const std::int32_t* ids = job.group.ids.data() + t * topk;
    const float* weights = job.group.weights.data() + t * topk;
    const std::byte* row = job.group.x.data() + t * hidden * size_of(c.dtype);
    const std::byte* scale_row = job.group.scales.data() + t * c.scale_row_bytes();
    const std::size_t out_row = t * hidden * size_of(c.out_dtype);
    const auto rank = [&](std::size_t k) {
      return ids[k] < 0 ? -1 : job.rank_of[static_cast<std::size_t>(ids[k])];
    };
    const auto dropped = [&](std::size_t k) { return !job.dropped.empty() && job.dropped[t * topk + k]; };
    for (int first = 0; first < c.hidden; first += kBlock) {
      const int n = std::min(kBlock, c.hidden - first);
      Block x, scales, y, sum{};
      read(c.dtype, row, first, n, x);
      read_scales(c, scale_row, first, n, scales);
      for (std::size_t k = 0; k < topk; ++k) {
        if (ids[k] < 0) continue;
        if (!by_rank) {
          if (dropped(k)) continue;
          answer(c, ids[k], x, scales, y);
          add_times(weights[k], y, sum);
          continue;
        }
        bool rank_had_its_turn = false;
        for (std::size_t j = 0; j < k; ++j) rank_had_its_turn = rank_had_its_turn || rank(j) == rank(k);
        if (rank_had_its_turn || (!c.partial_sums && dropped(k))) continue;
        Block part{};
        for (std::size_t j = k; j < topk; ++j) {
          if (rank(j) != rank(k) || (c.partial_sums && dropped(j))) continue;
          answer(c, ids[j], x, scales, y);
          add_times(weights[j], y, part);
        }
        round(c.partial_sums ? DType::bf16 : c.combine_dtype, part);
        add_times(1.0F, part, sum);
      }
      if (job.old != nullptr) {
        Block old;
        read(c.out_dtype, job.old + out_row, first, n, old);
        for (std::size_t j = 0; j < kBlock; ++j) sum[j] += old[j];
      }
      write(c.out_dtype, sum, job.out.data() + out_row, first, n);
    }
  }
}

// Twice, for machines with and without fused multiply-adds: the C library's, without, are as exact.
void combine_plainly(const Job& job) { combine(job); }
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void combine_with_avx2(const Job& job) { combine(job); }
#endif

}  // namespace

std::vector<std::byte> expected_combine(const Config& config, std::span<const std::int32_t> rank_of,
                                        const GroupStep& group, const std::byte* old,
                                        const std::vector<bool>& dropped) {
  const auto elements = static_cast<std::size_t>(group.tokens) * static_cast<std::size_t>(config.hidden);
  std::vector<std::byte> out(elements * size_of(config.out_dtype));
  const Job job{config, rank_of, group, old, dropped, out};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
    combine_with_avx2(job);
    return out;
  }
#endif
  combine_plainly(job);
  return out;
}

}  // namespace moelane::tools
