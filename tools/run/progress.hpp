#pragma once

#include <cstdint>

#include "cli/options.hpp"

namespace moelane::tools {

// Says on a terminal how many steps are done, now and then; rank 0 speaks for all.
class Progress {
 public:
  Progress(const Options& options, int rank) : options_(options), rank_(rank) {}
  void show(int steps_done);

 private:
  const Options& options_;
  int rank_;
  std::int64_t shown_ns_ = 0;
};

}  // namespace moelane::tools
