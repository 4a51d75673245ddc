#pragma once

#include "run/rank_context.hpp"

namespace moelane::tools {

// Does what --inject asks of this rank before the dispatch of `step` (from 1), if anything: dies, as a
// process or by an InjectedDeath, or stalls.
void inject(RankContext& rank, int step);

}  // namespace moelane::tools
