#include "run/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "run/timing.hpp"

namespace moelane::tools {

void Progress::show(int steps_done) {
  if (rank_ != 0 || options_.quiet || isatty(STDERR_FILENO) == 0) return;
  const std::int64_t now = now_ns();
  const bool last = steps_done >= options_.steps;
  if (!last && now - shown_ns_ < 500'000'000) return;
  if (shown_ns_ == 0 && last) return;  // too short for a line
  shown_ns_ = now;
  fmt::print(stderr, "\r{} of {} steps{}", std::min(steps_done, options_.steps), options_.steps,
             last ? "\n" : "");
}

}  // namespace moelane::tools
