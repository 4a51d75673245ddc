#include "report/trace_events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace moelane::tools {

using nlohmann::json;

json compose_trace(const std::vector<RankReport>& reports) {
  json events = json::array();
  std::int64_t origin = INT64_MAX;
  for (const RankReport& r : reports) {
    for (const json& e : r.trace) origin = std::min(origin, e[4].get<std::int64_t>());
  }
  for (const RankReport& r : reports) {
    events.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", r.rank},
                      {"tid", 0},
                      {"args", {{"name", fmt::format("rank {}", r.rank)}}}});
    for (const json& e : r.trace) {
      const int peer = e[3];
      const auto name = e[0].get<std::string>();
      const bool wait = name == "wait";
      json args = {{"step", e[2]}};
      if (peer >= 0) args["peer"] = peer;
      if (!wait) args["bytes"] = e[6];
      events.push_back(
          {{"ph", "X"},
           {"name", peer >= 0 ? fmt::format("wait for rank {}", peer)
                    : wait    ? "wait for all ranks"
                              : name},
           {"cat", wait ? "wait" : "phase"},
           {"pid", r.rank},
           {"tid", e[1]},
           {"ts", static_cast<double>(e[4].get<std::int64_t>() - origin) / 1000},
           {"dur", static_cast<double>(e[5].get<std::int64_t>() - e[4].get<std::int64_t>()) / 1000},
           {"args", args}});
    }
  }
  return {{"traceEvents", events}, {"displayTimeUnit", "ns"}};
}

}  // namespace moelane::tools
