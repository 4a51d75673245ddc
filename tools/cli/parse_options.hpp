#pragma once

#include <optional>

#include "cli/options.hpp"

namespace moelane::tools {

// Reads the command line. Throws Error(argument) with one sentence for whatever is wrong with it; nothing is
// returned when help or the version was asked for and printed.
std::optional<Options> parse_options(int argc, char** argv);

}  // namespace moelane::tools
