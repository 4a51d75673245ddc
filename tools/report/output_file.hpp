#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace moelane::tools {

// Throws Error(argument) when `path` cannot be written ("" and "-" can): said before the work, not after it.
void check_writable(const std::string& flag, const std::string& path);

// Writes to `path`, or to standard output for "-". Throws Error(argument) when it cannot.
void write_json(const std::string& flag, const std::string& path, const nlohmann::json& value);

}  // namespace moelane::tools
