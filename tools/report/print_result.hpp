#pragma once

#include <nlohmann/json.hpp>

#include "cli/options.hpp"

namespace moelane::tools {

// What compose_result made, for people.
void print_result(const Options& options, const nlohmann::json& result);

}  // namespace moelane::tools
