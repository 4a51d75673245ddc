#pragma once

#include <string_view>

#include "routing/drawn_routing.hpp"
#include "routing/input_file.hpp"

namespace moelane::tools {

// Reads expert counts, from which routing is drawn: JSON of the form {model: {kind: {domain: {layer: {expert:
// count}}}}}, or fewer levels, or a list. `selector` is the path of keys to one set of counts, or empty.
// Refuses what is not allowed.
Popularity read_expert_counts(const InputFile& file, std::string_view selector, int experts);

}  // namespace moelane::tools
