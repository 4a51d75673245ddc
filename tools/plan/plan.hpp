#pragma once

#include "cli/options.hpp"

namespace moelane::tools {

// `moelane plan`: what a run with these options would hold and move, and how fast that can be at best.
// Nothing is allocated and no rank is started. The exit code.
int plan(const Options& options);

}  // namespace moelane::tools
