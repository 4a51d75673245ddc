#pragma once

#include <nlohmann/json.hpp>

// What this process's control group and those above it, of either version, leave to it; null: no limit.
namespace moelane::tools {

nlohmann::json cgroup_cores();
nlohmann::json cgroup_memory();

}  // namespace moelane::tools
