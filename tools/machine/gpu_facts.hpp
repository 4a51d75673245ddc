#pragma once

#include <nlohmann/json.hpp>

namespace moelane::tools {

// What GPUs this machine has: compiled, runtime, driver, cards, peer_access (from, to), why, mps (runs,
// folder). An unknown value is null.
nlohmann::json gpu_facts();

}  // namespace moelane::tools
