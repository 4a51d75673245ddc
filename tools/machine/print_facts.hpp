#pragma once

#include <nlohmann/json.hpp>

namespace moelane::tools {

// What `moelane doctor` found, for people.
void print_facts(const nlohmann::json& facts);

}  // namespace moelane::tools
