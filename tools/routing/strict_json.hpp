#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "routing/input_file.hpp"

namespace moelane::tools {

// The largest JSON text that is read: a safetensors header by its format, and the small files for symmetry.
inline constexpr std::uint64_t max_json_bytes = 100'000'000;

// Parses `text`, a part of `file` named `where`. Stricter than nlohmann alone: no key twice in an object, no
// byte 0, at most 16 levels and two million values, so that memory stays in proportion.
nlohmann::json strict_json(const InputFile& file, std::string_view where, std::string_view text);

}  // namespace moelane::tools
