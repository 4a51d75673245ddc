#include "launch/session.hpp"

// A rank's report as JSON, which is how it travels from the rank's process to its parent.
namespace moelane::tools {
namespace {

using nlohmann::json;

json spans_json(const std::vector<std::vector<Span>>& steps) {
  json out = json::array();
  for (const auto& parts : steps) {
    json step = json::array();
    for (const Span& span : parts) step.push_back({span.begin, span.end});
    out.push_back(step);
  }
  return out;
}

std::vector<std::vector<Span>> spans_from(const json& from) {
  std::vector<std::vector<Span>> out;
  for (const json& step : from) {
    out.emplace_back();
    for (const json& span : step) out.back().push_back({span.at(0), span.at(1)});
  }
  return out;
}

}  // namespace

json to_json(const RankReport& r) {
  return {{"rank", r.rank},
          {"verdict", r.verdict},
          {"sentence", r.sentence},
          {"exit_code", r.exit_code},
          {"dispatch", spans_json(r.dispatch)},
          {"combine", spans_json(r.combine)},
          {"dispatch_digests", r.dispatch_digests},
          {"combine_digests", r.combine_digests},
          {"rows", r.rows},
          {"rows_dispatched", r.rows_dispatched},
          {"tokens_combined", r.tokens_combined},
          {"mismatches", r.mismatches},
          {"rank_visits", r.rank_visits},
          {"tokens_routed", r.tokens_routed},
          {"dispatch_bytes", r.dispatch_bytes},
          {"combine_bytes", r.combine_bytes},
          {"heap_bytes", r.heap_bytes},
          {"mapped_bytes", r.mapped_bytes},
          {"way", r.way},
          {"trace", r.trace},
          {"extra", r.extra}};
}

RankReport from_json(const json& j) {
  RankReport r;
  j.at("rank").get_to(r.rank);
  j.at("verdict").get_to(r.verdict);
  j.at("sentence").get_to(r.sentence);
  j.at("exit_code").get_to(r.exit_code);
  r.dispatch = spans_from(j.at("dispatch"));
  r.combine = spans_from(j.at("combine"));
  j.at("dispatch_digests").get_to(r.dispatch_digests);
  j.at("combine_digests").get_to(r.combine_digests);
  j.at("rows").get_to(r.rows);
  j.at("rows_dispatched").get_to(r.rows_dispatched);
  j.at("tokens_combined").get_to(r.tokens_combined);
  j.at("mismatches").get_to(r.mismatches);
  j.at("rank_visits").get_to(r.rank_visits);
  j.at("tokens_routed").get_to(r.tokens_routed);
  j.at("dispatch_bytes").get_to(r.dispatch_bytes);
  j.at("combine_bytes").get_to(r.combine_bytes);
  j.at("heap_bytes").get_to(r.heap_bytes);
  j.at("mapped_bytes").get_to(r.mapped_bytes);
  j.at("way").get_to(r.way);
  r.trace = j.at("trace");
  r.extra = j.at("extra");
  return r;
}

int exit_code_of(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::argument:
    case ErrorKind::capacity:
      return 2;
    default:
      return 3;
  }
}

std::string verdict_of(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::argument:
      return "argument";
    case ErrorKind::capacity:
      return "capacity";
    case ErrorKind::mismatch:
      return "mismatch";
    case ErrorKind::timeout:
      return "timeout";
    case ErrorKind::aborted:
      return "aborted";
    case ErrorKind::transport:
      return "transport";
  }
  return "failed";
}

}  // namespace moelane::tools
