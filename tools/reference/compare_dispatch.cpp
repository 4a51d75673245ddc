#include "reference/compare_dispatch.hpp"

#include <fmt/format.h>

#include <cstring>

namespace moelane::tools {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Counts differing bytes and words the first one.
class Comparison {
 public:
  explicit Comparison(int rank) : rank_(rank) {}

  template <class Where>
  void bytes(const void* got, const void* wanted, std::size_t n, const char* what, const Where& where) {
    if (n == 0 || std::memcmp(got, wanted, n) == 0) return;
    for (std::size_t i = 0; i < n; ++i) {
      const auto g = static_cast<const unsigned char*>(got)[i],
                 w = static_cast<const unsigned char*>(wanted)[i];
      if (g == w) continue;
      if (difference.bytes++ == 0) {
        difference.first =
            fmt::format("rank {}, {}{}: byte {} is {:#04x}, not {:#04x}", rank_, what, where(), i, g, w);
      }
    }
  }

  void number(std::int32_t got, std::int32_t wanted, const char* what, std::size_t index) {
    if (got == wanted) return;
    if (difference.bytes == 0) {
      difference.first = fmt::format("rank {}, {}[{}] is {}, not {}", rank_, what, index, got, wanted);
    }
    difference.bytes += 4;
  }

  Difference difference;

 private:
  int rank_;
};

// The ids and weights that come with a row of the ranked layout.
void compare_routing(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                     const GroupStep& from, const ExpectedRow& row, const std::vector<std::int32_t>& here,
                     const DispatchedView& got, Comparison& comparison) {
  for (std::int32_t k = 0; k < config.topk; ++k) {
    const std::size_t source = at(std::int64_t{row.token} * config.topk + k);
    const std::int64_t target = std::int64_t{row.row} * config.topk + k;
    const std::int32_t id = from.ids[source];
    std::int32_t local = -1;
    if (id >= 0 && rank_of[at(id)] == rank) {
      local = 0;
      while (here[at(local)] != id) ++local;
    }
    const float weight = local < 0 ? 0.0F : from.weights[source];
    const auto where = [&] { return fmt::format(" of row {}, k {}", row.row, k); };
    comparison.bytes(got.ids + target, &local, 4, "topk_ids", where);
    comparison.bytes(got.weights + target, &weight, 4, "topk_weights", where);
  }
}

}  // namespace

Difference compare_dispatch(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                            const std::vector<GroupStep>& groups, const ExpectedDispatch& expected,
                            const DispatchedView& got) {
  Comparison comparison(rank);
  for (std::size_t e = 0; e < expected.counts.size(); ++e) {
    comparison.number(got.counts[e], expected.counts[e], "expert_counts", e);
  }
  for (std::size_t e = 0; e < expected.offsets.size(); ++e) {
    comparison.number(got.offsets[e], expected.offsets[e], "expert_offsets", e);
  }
  const bool ranked = config.layout == Layout::ranked;
  if (ranked) comparison.number(*got.row_count, expected.row_count, "row_count", 0);

  const std::vector<std::int32_t> here = experts_of(rank_of, rank);
  const std::size_t row_bytes = config.row_bytes(), scale_bytes = at(config.scale_bytes);
  for (const ExpectedRow& row : expected.rows) {
    const GroupStep& from = groups[at(row.group)];
    const std::int64_t expert = config.layout == Layout::padded ? row.local : 0;
    const auto where = [&] {
      return fmt::format(" of row {} of expert {} (group {}, token {}, k {})", row.row, here[at(row.local)],
                         row.group, row.token, row.k);
    };
    comparison.bytes(got.x + expert * got.expert_stride + row.row * got.row_stride,
                     from.x.data() + at(row.token) * row_bytes, row_bytes, "x", where);
    const std::byte* scales = got.scales + expert * got.scale_expert_stride + row.row * got.scale_row_stride;
    for (std::int64_t c = 0; c < config.scale_columns; ++c) {
      comparison.bytes(scales + c * got.scale_column_stride,
                       from.scales.data() + at(row.token) * config.scale_row_bytes() + at(c) * scale_bytes,
                       scale_bytes, "scales", where);
    }
    if (ranked) compare_routing(config, rank_of, rank, from, row, here, got, comparison);
  }
  return comparison.difference;
}

}  // namespace moelane::tools
