#include "plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "cli/option_values.hpp"
#include "cli/text.hpp"
#include "moelane/heap.hpp"
#include "plan/way_costs.hpp"
#include "report/output_file.hpp"
#include "report/result.hpp"
#include "routing/placement_file.hpp"
#include "run/step_buffers.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;

// The caller's memory that no peer sees: a group's input and output.
std::size_t private_bytes(const Config& c) {
  const std::size_t token = c.row_bytes() + c.scale_row_bytes() + static_cast<std::size_t>(c.topk) * 8 +
                            static_cast<std::size_t>(c.hidden) * size_of(c.out_dtype);
  return static_cast<std::size_t>(c.max_tokens) * token;
}

json heap_json(const Config& c, int ranks) {
  const HeapBreakdown parts = heap_breakdown(c, ranks);
  return {{"control", parts.control},
          {"lanes", parts.lanes},
          {"lane",
           {{"signals", parts.signals},
            {"counts", parts.counts},
            {"routing", parts.routing},
            {"staging", parts.staging},
            {"slots", parts.slots},
            {"answers", parts.answers},
            {"symmetric", parts.symmetric},
            {"total", parts.of_a_lane()}}},
          {"total", parts.total()}};
}

json load_json(const Options& o, const Placement& placement, const Traffic& traffic) {
  std::vector<double> ranks(static_cast<std::size_t>(o.ranks));
  for (std::size_t e = 0; e < traffic.load.size(); ++e) {
    ranks[static_cast<std::size_t>(placement.rank_of()[e])] += traffic.load[e];
  }
  const auto most = std::max_element(ranks.begin(), ranks.end());
  double sum = 0;
  for (const double rows : ranks) sum += rows;
  return {{"mean", sum / o.ranks},
          {"most", *most},
          {"rank", most - ranks.begin()},
          {"imbalance", {{"expert", imbalance(traffic.load)}, {"rank", imbalance(ranks)}}}};
}

json compose_plan(const Options& o, const Config& c, const Placement& placement,
                  const RoutingSource& routing) {
  const Traffic counted = counted_traffic(o, placement, routing);
  const bool uniform = o.routing == "uniform";
  const Traffic traffic = uniform ? expected_traffic(o, placement) : counted;
  json out;
  out["config"] = config_json(o);
  out["routing"] = routing.description();
  out["steps_counted"] = counted.steps;
  out["heap"] = heap_json(c, o.ranks);
  out["heap_bytes"] = c.heap_bytes(o.ranks);
  out["symmetric_bytes"] = c.mapped_bytes(o.ranks) - c.heap_bytes(o.ranks);
  out["mapped_bytes"] = c.mapped_bytes(o.ranks);
  out["private_bytes"] = private_bytes(c);
  out["ranks_per_token"] = traffic.ranks_per_token;
  out["ranks_per_token_counted"] = counted.ranks_per_token;
  out["load"] = load_json(o, placement, counted);
  out["memory_gbs"] = o.memory_gbs;
  out["link_gbs"] = o.link_gbs;
  const bool could = c.way != Way::put && !c.partial_sums && !c.force_puts;
  out["way"] = could && !o.split ? "direct" : "put";
  if (!c.partial_sums) out["ways"]["direct"] = way_costs(true, o, traffic);
  out["ways"]["put"] = way_costs(false, o, traffic);
  return out;
}

void print_memory(const Options& o, const json& plan) {
  const json& heap = plan.at("heap");
  const auto line = [](const std::string& name, double bytes, const std::string& note) {
    fmt::print("  {:<34}{:>16.0f}  {:>10}  {}\n", name, bytes, amount(bytes), note);
  };
  fmt::print("memory of a rank, in bytes\n");
  line("control", heap.at("control"), "");
  const double lanes = heap.at("lanes");
  const std::pair<const char*, const char*> parts[] = {
      {"slots", "dispatched rows: one for each group, token"},
      {"answers", "one for each own token and k"},
      {"routing", "ids, weights, places"},
      {"counts", "rows for each expert, from each rank"},
      {"staging", "rows for heaps that cannot be addressed"},
      {"signals", "signal words and state"}};
  for (const auto& [name, note] : parts) {
    line(fmt::format("{} lanes of {}", lanes, name), lanes * heap.at("lane").at(name).get<double>(), note);
  }
  line("heap of the library", plan.at("heap_bytes"), "the sum");
  line("symmetric tensors of the caller", plan.at("symmetric_bytes"),
       fmt::format("outputs and expert rows of {} rows{}", o.capacity, o.padded() ? " an expert" : ""));
  line("mapped", plan.at("mapped_bytes"),
       fmt::format("of each rank; a CPU process maps all {} ranks'", o.ranks));
  line("private tensors of the caller", plan.at("private_bytes"),
       "one input and output of max-tokens tokens");
}

void print_costs(const Options& o, const json& plan) {
  const bool uniform = o.routing == "uniform";
  const json& load = plan.at("load");
  fmt::print(
      "routing {}: {:.4f} ranks a token{}; rank {} has most to do, {:.1f} rows a step of {:.1f} on average\n"
      "  (counted in {} of {} steps)\n",
      plan.at("routing").get<std::string>(), plan.at("ranks_per_token").get<double>(),
      uniform ? " expected, the sum over ranks of 1 - C(E - E_r, K) / C(E, K)" : "",
      load.at("rank").get<int>(), load.at("most").get<double>(), load.at("mean").get<double>(),
      plan.at("steps_counted").get<int>(), o.steps);
  fmt::print(
      "a step of a rank on average: put moves one row for each destination rank, which places it; direct one "
      "row\n"
      "for each expert; floors are of the busiest rank, with memory at {:g} GB/s (reads and writes, a rank) "
      "and\n"
      "links at {:g} GB/s (a rank, each way); ids, counts and signals are left out\n",
      o.memory_gbs, o.link_gbs);
  fmt::print("  {:<18} {:>9} {:>9} {:>12} {:>12} {:>12} {:>11} {:>11}\n", "", "rows", "placed", "stay here",
             "by link", "in memory", "memory us", "link us");
  for (const auto& [way, phases] : plan.at("ways").items()) {
    for (const char* phase : {"dispatch", "combine"}) {
      const json& p = phases.at(phase);
      const std::string name =
          fmt::format("{} {}{}", way, phase, way == plan.at("way").get<std::string>() ? " *" : "");
      fmt::print("  {:<18} {:>9.1f} {:>9.1f} {:>12} {:>12} {:>12} {:>11.2f} {:>11.2f}\n", name,
                 p.at("rows").get<double>(), p.at("rows_placed").get<double>(),
                 amount(p.at("bytes_local").get<double>()), amount(p.at("bytes_link").get<double>()),
                 amount(p.at("memory_bytes").get<double>()), p.at("floor_us").at("memory").get<double>(),
                 p.at("floor_us").at("link").get<double>());
    }
  }
  fmt::print("  * the way of these options\n");
}

}  // namespace

int plan(const Options& o) {
  const auto routing = open_routing(o.routing, o.config.experts, o.config.topk, o.seed);
  const Placement placement = open_placement(o.placement, o.config.experts, o.ranks);
  Config config = o.config;
  config.symmetric_bytes = symmetric_bytes(o, placement.max_local_experts(), 1);
  check_config(config, o.ranks);
  check_writable("--json", o.json);
  const json result = compose_plan(o, config, placement, *routing);
  if (!o.quiet && o.json != "-") {
    const Config& c = o.config;
    fmt::print(
        "moelane plan: {} ranks, DP groups of {}, {} experts, top-{}, hidden {}, at most {} tokens a group\n",
        o.ranks, c.tp_size, c.experts, c.topk, c.hidden, c.max_tokens);
    print_memory(o, result);
    print_costs(o, result);
  }
  if (!o.json.empty()) write_json("--json", o.json, result);
  return 0;
}

}  // namespace moelane::tools
