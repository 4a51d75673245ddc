#pragma once

#include <cstdint>
#include <string>

#include "moelane/config.hpp"
#include "moelane/error.hpp"
#include "protocol/report.hpp"

namespace moelane {

// Where a report comes from, for its sentence.
struct CallSite {
  const char* call;  // "dispatch_recv"
  int rank, lane;
  std::uint64_t step;  // the lane's epoch that the call works on
  double timeout;
  std::uint64_t farewell;  // of the report's peer, 0 if none came
};

// The one place that words a protocol failure; `report.fault` is not none.
Error error_of(const Report& report, const CallSite& site, const Config& config);

}  // namespace moelane
