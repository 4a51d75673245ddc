#include "report/rank_report.hpp"

// A rank's report as JSON, which is how it travels from the rank's process to its parent.
namespace moelane::tools {
namespace {

using nlohmann::json;

json spans_json(const std::vector<std::vector<TimeSpan>>& steps) {
  json out = json::array();
  for (const auto& parts : steps) {
    json step = json::array();
    for (const TimeSpan& span : parts) step.push_back({span.begin, span.end});
    out.push_back(step);
  }
  return out;
}

std::vector<std::vector<TimeSpan>> spans_from(const json& from) {
  std::vector<std::vector<TimeSpan>> out;
  for (const json& step : from) {
    out.emplace_back();
    for (const json& span : step) out.back().push_back({span.at(0), span.at(1)});
  }
  return out;
}

// Calls visit(key, field) for every field but the time spans, which JSON knows nothing of.
template <class Report, class Visit>
void for_each_field(Report& r, const Visit& visit) {
  visit("rank", r.rank);
  visit("verdict", r.verdict);
  visit("sentence", r.sentence);
  visit("exit_code", r.exit_code);
  visit("dispatch_digests", r.dispatch_digests);
  visit("combine_digests", r.combine_digests);
  visit("rows", r.rows);
  visit("rows_dispatched", r.rows_dispatched);
  visit("tokens_combined", r.tokens_combined);
  visit("mismatches", r.mismatches);
  visit("rank_visits", r.rank_visits);
  visit("tokens_routed", r.tokens_routed);
  visit("dispatch_bytes", r.dispatch_bytes);
  visit("combine_bytes", r.combine_bytes);
  visit("heap_bytes", r.heap_bytes);
  visit("mapped_bytes", r.mapped_bytes);
  visit("way", r.way);
  visit("trace", r.trace);
  visit("extra", r.extra);
}

}  // namespace

json to_json(const RankReport& report) {
  json out = {{"dispatch", spans_json(report.dispatch)}, {"combine", spans_json(report.combine)}};
  for_each_field(report, [&](const char* key, const auto& field) { out[key] = field; });
  return out;
}

RankReport from_json(const json& from) {
  RankReport report;
  report.dispatch = spans_from(from.at("dispatch"));
  report.combine = spans_from(from.at("combine"));
  for_each_field(report, [&](const char* key, auto& field) { from.at(key).get_to(field); });
  return report;
}

}  // namespace moelane::tools
