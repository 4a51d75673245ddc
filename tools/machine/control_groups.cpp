#include "machine/control_groups.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "machine/system_files.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// The first lines of `file` in this process's control group and all above it, of either version of control
// groups.
std::vector<std::string> cgroup_lines(const std::string& controller, const std::string& file) {
  std::vector<std::string> lines;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    fs::path root = "/sys/fs/cgroup";
    if (controllers != ",,") {
      if (controllers.find("," + controller + ",") == std::string::npos) continue;
      root /= controller;
    }
    // A container sees its own group at the root, whatever the path says.
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path();; path = path.parent_path()) {
      if (const std::string found = first_line(root / path / file); !found.empty()) lines.push_back(found);
      if (path.empty()) break;
    }
  }
  return lines;
}

}  // namespace

json cgroup_cores() {
  std::optional<double> least;
  const auto take = [&](double quota, double period) {
    if (quota > 0 && period > 0) least = std::min(least.value_or(1e9), quota / period);
  };
  for (const std::string& line : cgroup_lines("cpu", "cpu.max")) {
    double quota = 0, period = 0;
    if (std::istringstream in(line); in >> quota >> period) take(quota, period);
  }
  const auto quotas = cgroup_lines("cpu", "cpu.cfs_quota_us"),
             periods = cgroup_lines("cpu", "cpu.cfs_period_us");
  for (std::size_t i = 0; i < std::min(quotas.size(), periods.size()); ++i) {
    take(std::strtod(quotas[i].c_str(), nullptr), std::strtod(periods[i].c_str(), nullptr));
  }
  return least ? json(*least) : json();
}

json cgroup_memory() {
  std::uint64_t least = std::uint64_t{1} << 60;  // version 1 writes "no limit" as a number near 2^63
  const std::uint64_t none = least;
  for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
    for (const std::string& line : cgroup_lines("memory", file)) {
      if (line != "max") least = std::min<std::uint64_t>(least, std::strtoull(line.c_str(), nullptr, 10));
    }
  }
  return least == none ? json() : json(least);
}

}  // namespace moelane::tools
