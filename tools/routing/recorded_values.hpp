#pragma once

#include <cstdint>
#include <string_view>

#include "routing/input_file.hpp"

namespace moelane::tools {

// What ids and weights of a file may be, and the refusals that say so; `where` names token and k.
constexpr bool is_id(std::int64_t id, int experts) { return id >= -1 && id < experts; }
[[noreturn]] void refuse_id(const InputFile& file, std::string_view where, std::int64_t id, int experts);
[[noreturn]] void refuse_weight(const InputFile& file, std::string_view where, double weight);

}  // namespace moelane::tools
