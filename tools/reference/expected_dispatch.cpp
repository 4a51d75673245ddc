#include "reference/expected_dispatch.hpp"

#include <algorithm>

namespace moelane::tools {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Every (group, token, k) that names an expert of `rank`, in that order.
std::vector<ExpectedRow> choices(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                                 const std::vector<GroupStep>& groups) {
  std::vector<std::int32_t> local_of(rank_of.size(), -1);
  const std::vector<std::int32_t> here = experts_of(rank_of, rank);
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

}  // namespace

std::vector<std::int32_t> experts_of(std::span<const std::int32_t> rank_of, int rank) {
  std::vector<std::int32_t> here;
  for (std::size_t e = 0; e < rank_of.size(); ++e) {
    if (rank_of[e] == rank) here.push_back(static_cast<std::int32_t>(e));
  }
  return here;
}

ExpectedDispatch expected_dispatch(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                                   const std::vector<GroupStep>& groups, std::int32_t capacity) {
  ExpectedDispatch result;
  result.counts.assign(experts_of(rank_of, rank).size(), 0);
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

}  // namespace moelane::tools
