#include <set>

#include "routing/placement_file.hpp"
#include "run/rank_run.hpp"

namespace moelane::tools {

Placement placement_of(const Options& options) {
  if (options.placement == "contiguous") return Placement::even(options.config.experts, options.ranks);
  return Placement::table(read_placement(options.placement, options.config.experts, options.ranks),
                          options.ranks);
}

void describe(const Options& options, const Engine& engine, const Place& place, RankReport& report) {
  report.heap_bytes = engine.config().heap_bytes(options.ranks);
  report.mapped_bytes = engine.mapped_bytes();
  report.way = engine.direct() && !options.split ? "direct" : "put";
  report.rows.resize(static_cast<std::size_t>(options.config.experts));
  if (place.card()) report.extra["num_sms"] = place.num_sms();
}

void keep_floor(const nlohmann::json& floor, RankReport& report) {
  if (floor.is_null()) return;
  for (const char* phase : {"dispatch", "combine"}) {
    report.extra[phase]["floor_us"] = floor.at(std::string(phase) + "_us");
  }
}

void count_load(const Options& options, const Placement& placement, int rank, const GroupStep& own,
                const std::int32_t* counts, RankReport& report) {
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
