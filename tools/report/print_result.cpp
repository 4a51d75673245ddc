#include "report/print_result.hpp"

#include <fmt/format.h>

#include <string>

#include "cli/text.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;

void print_phase(const char* name, const json& phase) {
  const json& us = phase.at("us");
  fmt::print("  {:<9} median {:>9.1f} us   p99 {:>9.1f} us   min {:>9.1f} us   {:>10} moved", name,
             us.at("median").get<double>(), us.at("p99").get<double>(), us.at("min").get<double>(),
             amount(phase.at("bytes").get<double>()));
  if (phase.at("floor_us").is_number()) fmt::print("   floor {:.1f} us", phase.at("floor_us").get<double>());
  if (phase.contains("us_events")) {
    fmt::print("   events {:.1f} us   launch {:.1f} us", phase.at("us_events").get<double>(),
               phase.at("launch_us").get<double>());
  }
  fmt::print("\n");
}

}  // namespace

void print_result(const Options& o, const json& r) {
  if (r.at("exit_code") == 2) return;  // the sentence is all there is to say
  const Config& c = o.config;
  const auto way = r.at("way").get<std::string>();
  const std::string tokens = o.tokens.low == o.tokens.high
                                 ? fmt::format("{}", o.tokens.low)
                                 : fmt::format("{}..{}", o.tokens.low, o.tokens.high);
  const int sms = r.at("config").at("num_sms");
  fmt::print(
      "moelane {}: {} ranks ({}{}), DP groups of {}, {} experts, top-{}, hidden {}, {} tokens a group\n",
      o.command == Command::bench ? "bench" : "run", o.ranks, o.transport,
      sms > 0 ? fmt::format(", {} SMs each", sms) : "", c.tp_size, c.experts, c.topk, c.hidden, tokens);
  fmt::print("  rows {}{}, answers {}, layout {}, {} calls{}, {} steps, {} lanes, routing {}\n",
             name_of(c.dtype), c.scale_columns > 0 ? fmt::format(" with {} scales", c.scale_columns) : "",
             name_of(c.combine_dtype), name_of(c.layout), o.split ? "split" : "whole",
             way.empty() ? "" : fmt::format(", {} way", way), o.steps, c.in_flight,
             r.at("routing").get<std::string>());
  if (r.at("exit_code") == 3) {
    fmt::print("failed (first cause: {}): {} of {} ranks\n", r.at("verdict").get<std::string>(),
               r.at("failures").size(), o.ranks);
    return;
  }
  if (r.at("routing_wraps").get<bool>()) {
    fmt::print(
        "  the routing file has {} tokens, fewer than the steps ask for, and is used again from its start\n",
        r.at("routing_tokens").get<std::int64_t>());
  }
  print_phase("dispatch", r.at("dispatch"));
  print_phase("combine", r.at("combine"));
  if (r.contains("baselines")) {
    for (const json& b : r.at("baselines")) {
      fmt::print("  {:<40} median {:>9.1f} us\n", b.at("name").get<std::string>(),
                 b.at("us").at("median").get<double>());
    }
  }
  fmt::print("  heap {} a rank, beside {} of symmetric tensors\n", amount(r.at("heap_bytes").get<double>()),
             amount(r.at("symmetric_bytes").get<double>()));
  fmt::print("  imbalance (max / mean): experts {:.3f}, ranks {:.3f}; {:.3f} ranks a token\n",
             r.at("imbalance").at("expert").get<double>(), r.at("imbalance").at("rank").get<double>(),
             r.at("ranks_per_token").get<double>());
  fmt::print("  digests: dispatch {}, combine {}\n", r.at("digest").at("dispatch").get<std::string>(),
             r.at("digest").at("combine").get<std::string>());
  if (r.at("verdict") == "verified") {
    fmt::print("verified: {} rows dispatched, {} tokens combined, every byte as the reference has it\n",
               r.at("rows_dispatched").get<std::int64_t>(), r.at("tokens_combined").get<std::int64_t>());
  } else {
    fmt::print("wrong: {} of {} ranks, {} bytes are not as the reference has them\n", r.at("failures").size(),
               o.ranks, r.at("mismatches").get<std::int64_t>());
  }
}

}  // namespace moelane::tools
