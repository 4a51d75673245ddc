#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace moelane::tools {

// What this machine has, for `moelane doctor`. An unknown value is null. Nothing here waits for long.
nlohmann::json cpu_facts();     // model, cores_*, numa_nodes, last_level_cache, instructions
nlohmann::json memory_facts();  // bytes, available, limit
nlohmann::json kernel_facts();  // release, memfd, futex ("works" or why not), huge_pages, dev_shm
nlohmann::json device_facts();  // gpus, driver, rdma (names), efa (names)
nlohmann::json
gpu_facts();  // compiled, runtime, driver, cards, peer_access (from, to), why, mps (runs, folder)
nlohmann::json software_facts();  // mpi (launchers with path and version), nvshmem (path)

// Where a program lies in PATH, empty if it does not; and the first line that it prints for --version.
std::string in_path(const std::string& program);
std::string version_of(const std::string& program);

}  // namespace moelane::tools
