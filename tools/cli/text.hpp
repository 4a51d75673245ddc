#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// Values as people read them, in sentences and tables.
namespace moelane::tools {

// `text` in double quotes for an error sentence: other than printable ASCII escaped, cut after about `limit`
// characters, so that a hostile file can neither flood a terminal nor steer it.
std::string quote(std::string_view text, std::size_t limit = 60);

// The same for a JSON value: numbers and strings are shown, of anything else only its type.
std::string shown(const nlohmann::json& value);

// Bytes for people: 43.2 MiB.
std::string amount(double bytes);

}  // namespace moelane::tools
