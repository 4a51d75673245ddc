#pragma once

#include "cli/options.hpp"

namespace moelane::tools {

// Sets of `bytes` that together are at least twice the last cache, within reason; at least `least` for
// buffers.
int sets_beyond_cache(double bytes, bool on_cards);
int sets_for(const Options& options, int least);

}  // namespace moelane::tools
