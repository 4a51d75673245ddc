#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// Reading what the system says of itself, in /proc and /sys. What is not there is empty.
namespace moelane::tools {

std::string first_line(const std::filesystem::path& path);

// What follows "key :" in a file of such lines.
std::string entry_of(const char* path, const std::string& key);

// The names in a folder that begin with `prefix`, sorted.
std::vector<std::string> names_in(const std::filesystem::path& folder, const std::string& prefix);

// A number of bytes from "123 kB" or "32768K"; null if it is none.
nlohmann::json bytes_from(const std::string& text);

}  // namespace moelane::tools
