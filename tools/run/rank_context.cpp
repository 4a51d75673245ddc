#include "run/rank_context.hpp"

#include <string>
#include <string_view>
#include <utility>

#include "routing/placement_file.hpp"
#include "run/dispatched_rows.hpp"

namespace moelane::tools {

RankContext::RankContext(const Options& o, const RoutingSource& routing, World the_world, int sets,
                         RankReport& the_report)
    : options(o),
      config(o.config),
      placement(open_placement(o.placement, config.experts, o.ranks)),
      workload(config, o.ranks, routing, o.tokens, o.seed),
      world(std::move(the_world)),
      device(world, o),
      report(the_report),
      checks(o, placement, world.rank(), the_report) {
  const int sets_of_a_lane = (sets + config.in_flight - 1) / config.in_flight;
  config.num_sms = device.num_sms();
  config.symmetric_bytes = symmetric_bytes(o, placement.max_local_experts(), sets_of_a_lane);
  engine = std::make_unique<Engine>(world, config, placement);
  for (int set = 0; set < sets; ++set) {
    buffers.push_back(allocate_buffers(device, *engine, o, lane_of(set)));
  }
}

void RankContext::describe() {
  report.heap_bytes = engine->config().heap_bytes(options.ranks);
  report.mapped_bytes = engine->mapped_bytes();
  report.way = engine->direct() && !options.split ? "direct" : "put";
  report.rows.resize(static_cast<std::size_t>(config.experts));
  if (device.on_card()) report.extra["num_sms"] = device.num_sms();
}

std::vector<GroupStep> RankContext::step_of_all_groups(int step) const {
  std::vector<GroupStep> groups;
  for (int group = 0; group < workload.groups(); ++group) groups.push_back(workload.make(step, group));
  return groups;
}

void RankContext::fetch(int set) {
  fetch_dispatched(options, device, placement.local_experts(rank()), buffers_of(set));
}

void RankContext::run_experts(int set) {
  tools::run_experts(options, device, placement, rank(), buffers_of(set));
}

void RankContext::count_bytes(const TraceEvent& event) {
  if (event.peer >= 0) return;  // a wait
  const bool dispatch = std::string_view(event.name).starts_with("dispatch");
  (dispatch ? report.dispatch_bytes : report.combine_bytes) += event.bytes;
}

void RankContext::report_floor(const nlohmann::json& floor) {
  if (floor.is_null()) return;
  for (const char* phase : {"dispatch", "combine"}) {
    report.extra[phase]["floor_us"] = floor.at(std::string(phase) + "_us");
  }
}

}  // namespace moelane::tools
