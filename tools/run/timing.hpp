#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "moelane/world.hpp"

namespace moelane::tools {

// Begin and end of a phase, CLOCK_MONOTONIC: one machine, so comparable between ranks.
struct TimeSpan {
  std::int64_t begin = 0, end = 0;
};

inline std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Runs `work` on every rank at once; from the first rank's start to the last rank's end in microseconds, the
// same number on every rank. Collective.
template <class Work>
double slowest_us(World& world, const Work& work) {
  world.barrier();
  TimeSpan span{now_ns(), 0};
  work();
  span.end = now_ns();
  std::vector<TimeSpan> all(static_cast<std::size_t>(world.size()));
  world.all_gather(&span, sizeof span, all.data());
  for (const TimeSpan& s : all) {
    span.begin = std::min(span.begin, s.begin);
    span.end = std::max(span.end, s.end);
  }
  return static_cast<double>(span.end - span.begin) / 1000;
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace moelane::tools
