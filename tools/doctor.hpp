#pragma once

#include "options.hpp"

namespace moelane::tools {

// `moelane doctor`: what this machine has, and which transports work here. The two CPU transports are really tried. Ends
// within a minute whatever the machine is like. The exit code: 0 when any transport works, else 3.
int doctor(const Options& options);

}  // namespace moelane::tools
