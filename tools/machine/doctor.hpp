#pragma once

#include "cli/options.hpp"

namespace moelane::tools {

// `moelane doctor`: what this machine has, and which transports work here; those of CPUs, and of GPUs where
// there are any, are really tried. Ends within a minute whatever the machine is like. The exit code is 0 when
// any transport works.
int doctor(const Options& options);

}  // namespace moelane::tools
