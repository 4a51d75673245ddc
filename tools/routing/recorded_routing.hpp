#pragma once

#include <memory>
#include <string>

#include "routing/routing.hpp"

namespace moelane::tools {

// A source that gives the tokens of `routing` in turn, and starts again after the last.
std::unique_ptr<RoutingSource> recorded_source(Routing routing, std::string description);

}  // namespace moelane::tools
