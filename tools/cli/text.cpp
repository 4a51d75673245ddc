#include "cli/text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace moelane::tools {

std::string quote(std::string_view text, std::size_t limit) {
  std::string result = "\"";
  for (const char character : text) {
    if (result.size() > limit) return result + "\"...";
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte > 0x7e) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      if (character == '"' || character == '\\') result += '\\';
      result += character;
    }
  }
  return result + '"';
}

std::string shown(const nlohmann::json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  if (value.is_number() || value.is_boolean() || value.is_null()) return value.dump();
  return fmt::format("an {}", value.type_name());
}

std::string amount(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t u = 0;
  for (; bytes >= 1024 && u < 4; ++u) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, u == 0 ? 0 : 1, units[u]);
}

}  // namespace moelane::tools
