#include "report/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "report/digest.hpp"
#include "report/verdict.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

using Spans = std::vector<std::vector<TimeSpan>> RankReport::*;

// Microseconds of each step: from the first rank's start to the last rank's end, both halves of split calls
// added.
std::vector<double> step_times(const std::vector<RankReport>& reports, Spans spans, std::size_t skip) {
  std::vector<double> out;
  std::size_t steps = reports.empty() ? 0 : (reports[0].*spans).size();
  for (const RankReport& r : reports) steps = std::min(steps, (r.*spans).size());
  for (std::size_t step = skip; step < steps; ++step) {
    double us = 0;
    std::size_t parts = (reports[0].*spans)[step].size();
    for (const RankReport& r : reports) parts = std::min(parts, (r.*spans)[step].size());
    for (std::size_t part = 0; part < parts; ++part) {
      std::int64_t begin = INT64_MAX, end = 0;
      for (const RankReport& r : reports) {
        begin = std::min(begin, (r.*spans)[step][part].begin);
        end = std::max(end, (r.*spans)[step][part].end);
      }
      us += static_cast<double>(end - begin) / 1000;
    }
    if (parts > 0) out.push_back(us);
  }
  return out;
}

// `more`: what was measured beside the steps, the floor above all.
json timing(const std::vector<double>& us, double bytes, const json& more) {
  json out = {{"us", {{"median", quantile(us, 0.5)}, {"p99", quantile(us, 0.99)}, {"min", quantile(us, 0)}}},
              {"bytes", bytes},
              {"floor_us", nullptr}};
  if (more.is_object()) out.update(more);
  return out;
}

std::string digest(const std::vector<RankReport>& reports, std::vector<std::uint64_t> RankReport::*digests) {
  std::uint64_t all = 0;
  for (const RankReport& r : reports) all = digest_bytes((r.*digests).data(), (r.*digests).size() * 8, all);
  return fmt::format("{:016x}", all);
}

}  // namespace

double imbalance(const std::vector<double>& loads) {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  return sum == 0 ? 1
                  : *std::max_element(loads.begin(), loads.end()) * static_cast<double>(loads.size()) / sum;
}

json config_json(const Options& o) {
  const Config& c = o.config;
  return {{"ranks", o.ranks},
          {"tp", c.tp_size},
          {"experts", c.experts},
          {"topk", c.topk},
          {"hidden", c.hidden},
          {"tokens", {o.tokens.low, o.tokens.high}},
          {"max_tokens", c.max_tokens},
          {"dtype", name_of(c.dtype)},
          {"scale_columns", c.scale_columns},
          {"combine_dtype", name_of(c.combine_dtype)},
          {"layout", name_of(c.layout)},
          {"alignment", c.alignment},
          {"capacity", o.capacity},
          {"routing", o.routing},
          {"placement", o.placement},
          {"way", name_of(c.way)},
          {"calls", o.split ? "split" : "whole"},
          {"accumulate", o.accumulate},
          {"partial_sums", c.partial_sums},
          {"force_puts", c.force_puts},
          {"steps", o.steps},
          {"in_flight", c.in_flight},
          {"num_sms", c.num_sms},
          {"graph", o.graph},
          {"processes", !o.threads()},
          {"seed", o.seed}};
}

json compose_result(const Options& options, const RoutingSource& routing,
                    const std::vector<RankReport>& reports) {
  const std::size_t warm = options.command == Command::bench ? static_cast<std::size_t>(options.warmup) : 0;
  json out;
  out["config"] = config_json(options);
  out["transport"] = options.transport;
  std::string verdict = "verified";
  int exit_code = 0;
  json ranks = json::array();
  std::int64_t rows = 0, tokens = 0, mismatches = 0, visits = 0, routed = 0;
  double dispatch_bytes = 0, combine_bytes = 0;
  std::vector<double> by_expert(static_cast<std::size_t>(options.config.experts)), by_rank;
  for (const RankReport& r : reports) {
    if (severity(r.exit_code, r.verdict) > severity(exit_code, verdict)) {
      exit_code = r.exit_code;
      verdict = r.verdict;
    }
    rows += r.rows_dispatched;
    tokens += r.tokens_combined;
    mismatches += r.mismatches;
    visits += r.rank_visits;
    routed += r.tokens_routed;
    dispatch_bytes += static_cast<double>(r.dispatch_bytes);
    combine_bytes += static_cast<double>(r.combine_bytes);
    double here = 0;
    for (std::size_t e = 0; e < r.rows.size(); ++e) {
      by_expert[e] += static_cast<double>(r.rows[e]);
      here += static_cast<double>(r.rows[e]);
    }
    by_rank.push_back(here);
    if (r.exit_code != 0)
      ranks.push_back({{"rank", r.rank}, {"verdict", r.verdict}, {"sentence", r.sentence}});
  }
  // A rank that died has said nothing; what is the same on all ranks is taken from one that has.
  const auto known =
      std::find_if(reports.begin(), reports.end(), [](const auto& r) { return !r.way.empty(); });
  const RankReport& first = known == reports.end() ? reports.front() : *known;
  const double steps = std::max(1, options.steps);
  out["verdict"] = verdict;
  out["exit_code"] = exit_code;
  out["failures"] = ranks;
  out["way"] = first.way;
  out["rows_dispatched"] = rows;
  out["tokens_combined"] = tokens;
  out["mismatches"] = mismatches;
  out["digest"] = {{"dispatch", digest(reports, &RankReport::dispatch_digests)},
                   {"combine", digest(reports, &RankReport::combine_digests)}};
  out["heap_bytes"] = first.heap_bytes;
  out["mapped_bytes"] = first.mapped_bytes;
  out["symmetric_bytes"] = first.mapped_bytes - first.heap_bytes;
  out["imbalance"] = {{"expert", imbalance(by_expert)}, {"rank", imbalance(by_rank)}};
  out["ranks_per_token"] = routed == 0 ? 0 : static_cast<double>(visits) / static_cast<double>(routed);
  const json& extra = first.extra;
  out["dispatch"] = timing(step_times(reports, &RankReport::dispatch, warm), dispatch_bytes / steps,
                           extra.value("dispatch", json()));
  out["combine"] = timing(step_times(reports, &RankReport::combine, warm), combine_bytes / steps,
                          extra.value("combine", json()));
  if (extra.contains("num_sms")) out["config"]["num_sms"] = extra.at("num_sms");
  if (extra.contains("baselines")) out["baselines"] = extra.at("baselines");
  if (extra.contains("bench")) out["bench"] = extra.at("bench");
  out["routing"] = routing.description();
  const std::int64_t there = routing.tokens_available();
  const std::int64_t asked = static_cast<std::int64_t>(options.steps) *
                             (options.ranks / options.config.tp_size) * options.tokens.high;
  out["routing_wraps"] = there >= 0 && asked > there;
  if (there >= 0) out["routing_tokens"] = there;
  return out;
}

}  // namespace moelane::tools
