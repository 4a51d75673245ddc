#include "machine/system_files.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <system_error>

namespace moelane::tools {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string entry_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

std::vector<std::string> names_in(const fs::path& folder, const std::string& prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename();
    if (name.starts_with(prefix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

nlohmann::json bytes_from(const std::string& text) {
  std::istringstream in(text);
  std::uint64_t number = 0;
  std::string unit;
  if (!(in >> number)) return {};
  in >> unit;
  const char first = unit.empty() ? 'B' : unit[0];
  return number << (first == 'k' || first == 'K' ? 10 : first == 'M' ? 20 : first == 'G' ? 30 : 0);
}

}  // namespace moelane::tools
