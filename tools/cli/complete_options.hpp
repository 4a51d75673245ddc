#pragma once

#include "cli/option_flags.hpp"

namespace moelane::tools {

// Fills in what follows from the rest, and checks what no single flag shows. Throws Error(argument).
void complete_options(Options& options, const UnfinishedOptions& unfinished);

}  // namespace moelane::tools
