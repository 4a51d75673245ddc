#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace moelane::tools {

// What this machine has installed: mpi (launchers with path and version), nvshmem (path, or null).
nlohmann::json software_facts();

// Where a program lies in PATH, empty if it does not; and the first line that it prints for --version, if it
// does so within two seconds.
std::string in_path(const std::string& program);
std::string version_of(const std::string& program);

}  // namespace moelane::tools
