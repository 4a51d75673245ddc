#include "reference/reference.hpp"

#include <fmt/format.h>

#include <cstring>

// Dispatch as the job defines it: who gets which row, in which place. The combine is in
// reference_combine.cpp.
namespace moelane::tools {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// The global ids of a rank's experts, ascending: local number -> id.
std::vector<std::int32_t> experts_here(std::span<const std::int32_t> rank_of, int rank) {
  std::vector<std::int32_t> here;
  for (std::size_t e = 0; e < rank_of.size(); ++e) {
    if (rank_of[e] == rank) here.push_back(static_cast<std::int32_t>(e));
  }
  return here;
}

// Every (group, token, k) that names an expert of `rank`, in that order.
std::vector<ExpectedRow> choices(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                                 const std::vector<GroupStep>& groups) {
  std::vector<std::int32_t> local_of(rank_of.size(), -1);
  const std::vector<std::int32_t> here = experts_here(rank_of, rank);
  for (std::size_t i = 0; i < here.size(); ++i) local_of[at(here[i])] = static_cast<std::int32_t>(i);
  std::vector<ExpectedRow> all;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::int32_t t = 0; t < groups[g].tokens; ++t) {
      for (std::int32_t k = 0; k < config.topk; ++k) {
        const std::int32_t id = groups[g].ids[at(std::int64_t{t} * config.topk + k)];
        if (id >= 0 && local_of[at(id)] >= 0) {
          all.push_back({local_of[at(id)], 0, static_cast<std::int32_t>(g), t, k});
        }
      }
    }
  }
  return all;
}

void place_ranked(const std::vector<ExpectedRow>& chosen, std::int32_t capacity, ExpectedDispatch& result) {
  std::int32_t next = -1, group = -1, token = -1;
  for (ExpectedRow row : chosen) {
    const bool fresh = row.group != group || row.token != token;
    if (fresh) ++next;
    group = row.group;
    token = row.token;
    if (next >= capacity) {
      result.overflow = true;
      return;
    }
    row.row = next;
    ++result.counts[at(row.local)];
    if (fresh) result.rows.push_back(row);
    result.row_count = next + 1;
  }
}

void place_by_expert(const Config& config, const std::vector<ExpectedRow>& chosen, std::int32_t capacity,
                     ExpectedDispatch& result) {
  const bool padded = config.layout == Layout::padded;
  std::vector<std::int64_t> wanted(result.counts.size(), 0), first(result.counts.size(), 0);
  for (const ExpectedRow& row : chosen) ++wanted[at(row.local)];
  std::int64_t begin = 0;
  for (std::size_t e = 0; e < wanted.size() && !padded; ++e) {
    first[e] = begin;
    result.offsets.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(begin, capacity)));
    while (wanted[e]-- > 0) ++begin;
    while (begin % config.alignment != 0) ++begin;
  }
  if (!padded) result.offsets.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(begin, capacity)));
  for (ExpectedRow row : chosen) {
    const std::int64_t place = first[at(row.local)]++;
    if (place >= capacity) {
      result.overflow = true;
      continue;
    }
    row.row = static_cast<std::int32_t>(place);
    ++result.counts[at(row.local)];
    result.rows.push_back(row);
  }
}

// Counts differing bytes and words the first one.
class Judge {
 public:
  explicit Judge(int rank) : rank_(rank) {}

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
void judge_routing(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                   const GroupStep& from, const ExpectedRow& row, const std::vector<std::int32_t>& here,
                   const DispatchedView& got, Judge& judge) {
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
    judge.bytes(got.ids + target, &local, 4, "topk_ids", where);
    judge.bytes(got.weights + target, &weight, 4, "topk_weights", where);
  }
}

}  // namespace

ExpectedDispatch expected_dispatch(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                                   const std::vector<GroupStep>& groups, std::int32_t capacity) {
  ExpectedDispatch result;
  result.counts.assign(experts_here(rank_of, rank).size(), 0);
  const std::vector<ExpectedRow> chosen = choices(config, rank_of, rank, groups);
  if (config.layout == Layout::ranked) {
    place_ranked(chosen, capacity, result);
  } else {
    place_by_expert(config, chosen, capacity, result);
  }
  return result;
}

std::vector<bool> dropped_rows(const Config& config, std::span<const std::int32_t> rank_of, int group,
                               const std::vector<GroupStep>& groups,
                               std::span<const std::int32_t> capacities) {
  const auto topk = std::int64_t{config.topk};
  std::vector<bool> dropped(groups[at(group)].ids.size(), false);
  for (std::size_t rank = 0; rank < capacities.size(); ++rank) {
    const int r = static_cast<int>(rank);
    std::int32_t token = -1;
    for (const ExpectedRow& row : choices(config, rank_of, r, groups)) {
      const bool further = config.layout == Layout::ranked && row.token == token;
      if (row.group == group && !further) dropped[at(row.token * topk + row.k)] = true;
      token = row.group == group ? row.token : -1;
    }
    for (const ExpectedRow& row : expected_dispatch(config, rank_of, r, groups, capacities[rank]).rows) {
      if (row.group == group) dropped[at(row.token * topk + row.k)] = false;
    }
  }
  return dropped;
}

Difference compare_dispatch(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                            const std::vector<GroupStep>& groups, const ExpectedDispatch& expected,
                            const DispatchedView& got) {
  Judge judge(rank);
  for (std::size_t e = 0; e < expected.counts.size(); ++e) {
    judge.number(got.counts[e], expected.counts[e], "expert_counts", e);
  }
  for (std::size_t e = 0; e < expected.offsets.size(); ++e) {
    judge.number(got.offsets[e], expected.offsets[e], "expert_offsets", e);
  }
  const bool ranked = config.layout == Layout::ranked;
  if (ranked) judge.number(*got.row_count, expected.row_count, "row_count", 0);

  const std::vector<std::int32_t> here = experts_here(rank_of, rank);
  const std::size_t row_bytes = config.row_bytes(), scale_bytes = at(config.scale_bytes);
  for (const ExpectedRow& row : expected.rows) {
    const GroupStep& from = groups[at(row.group)];
    const std::int64_t expert = config.layout == Layout::padded ? row.local : 0;
    const auto where = [&] {
      return fmt::format(" of row {} of expert {} (group {}, token {}, k {})", row.row, here[at(row.local)],
                         row.group, row.token, row.k);
    };
    judge.bytes(got.x + expert * got.expert_stride + row.row * got.row_stride,
                from.x.data() + at(row.token) * row_bytes, row_bytes, "x", where);
    const std::byte* scales = got.scales + expert * got.scale_expert_stride + row.row * got.scale_row_stride;
    for (std::int64_t c = 0; c < config.scale_columns; ++c) {
      judge.bytes(scales + c * got.scale_column_stride,
                  from.scales.data() + at(row.token) * config.scale_row_bytes() + at(c) * scale_bytes,
                  scale_bytes, "scales", where);
    }
    if (ranked) judge_routing(config, rank_of, rank, from, row, here, got, judge);
  }
  return judge.difference;
}

}  // namespace moelane::tools
