#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "report/report.hpp"
#include "routing/routing_input.hpp"

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

namespace {

[[noreturn]] void refuse_file(const std::string& flag, const std::string& path, int error) {
  throw Error(ErrorKind::argument, fmt::format("{} is {}, allowed is a file that can be written: {}", flag,
                                               quote(path, 200), std::strerror(error)));
}

}  // namespace

void check_writable(const std::string& flag, const std::string& path) {
  if (path.empty() || path == "-") return;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (file < 0) refuse_file(flag, path, errno);
  close(file);
}

void write_json(const std::string& flag, const std::string& path, const json& value) {
  // A file's name may hold bytes that are no text.
  const std::string text = value.dump(2, ' ', false, json::error_handler_t::replace);
  if (path == "-") {
    std::cout << text << std::endl;
    return;
  }
  std::ofstream file(path);
  file << text << '\n';
  file.close();
  if (!file) refuse_file(flag, path, errno);
}

}  // namespace moelane::tools
