#pragma once

#include <nlohmann/json.hpp>

#include "run/rank_context.hpp"

namespace moelane::tools {

// What bench measures of ranks on cards beside its steps, by phase: "us_events", the median of the slowest
// rank's time between an event before the call and one after it; and "launch_us", the median of the host's
// time for a call that is put on the stream without a graph (split: the dearer half), on the slowest rank.
// Collective.
nlohmann::json measure_events_and_launches(RankContext& rank);

}  // namespace moelane::tools
