#include <set>

#include "placement_file.hpp"
#include "rank_run.hpp"

namespace moelane::tools {

Placement placement_of(const Options& options) {
  if (options.placement == "contiguous") return Placement::even(options.config.experts, options.ranks);
  return Placement::table(read_placement(options.placement, options.config.experts, options.ranks),
                          options.ranks);
}

void count_load(const Options& options, const Placement& placement, int rank, const GroupStep& own,
                const std::vector<std::int32_t>& counts, RankReport& report) {
  const auto experts = placement.experts_of(rank);
  for (std::size_t local = 0; local < experts.size(); ++local) {
    report.rows[static_cast<std::size_t>(experts[local])] += counts[local];
  }
  if (rank % options.config.tp_size != 0) return;  // a group's routing is counted once
  for (int t = 0; t < own.tokens; ++t) {
    std::set<std::int32_t> ranks;
    for (int k = 0; k < options.config.topk; ++k) {
      const std::int32_t id = own.ids[static_cast<std::size_t>(t * options.config.topk + k)];
      if (id >= 0) ranks.insert(placement.rank_of()[static_cast<std::size_t>(id)]);
    }
    report.rank_visits += static_cast<std::int64_t>(ranks.size());
    ++report.tokens_routed;
  }
}

}  // namespace moelane::tools
