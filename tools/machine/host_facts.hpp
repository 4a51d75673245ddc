#pragma once

#include <nlohmann/json.hpp>

// What this machine has, for `moelane doctor`. An unknown value is null. Nothing here waits for long.
namespace moelane::tools {

nlohmann::json cpu_facts();     // model, cores_*, numa_nodes, last_level_cache, instructions
nlohmann::json memory_facts();  // bytes, available, limit
nlohmann::json kernel_facts();  // release, memfd, futex ("works" or why not), huge_pages, dev_shm
nlohmann::json device_facts();  // gpus, driver, rdma (names), efa (names)

}  // namespace moelane::tools
