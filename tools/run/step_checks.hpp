#pragma once

#include <string>
#include <vector>

#include "moelane/placement.hpp"
#include "report/rank_report.hpp"
#include "run/step_buffers.hpp"

namespace moelane::tools {

// Compares what one rank got in a step with the reference, byte for byte, and adds it to the rank's report:
// digests, loads, and differences, of which the first becomes a sentence that says `where`.
class StepChecks {
 public:
  StepChecks(const Options& options, const Placement& placement, int rank, RankReport& report)
      : options_(options), placement_(placement), rank_(rank), report_(report) {}

  void dispatch(const std::string& where, const std::vector<GroupStep>& groups, const StepBuffers& buffers);
  // `old`: what the output held before, dense, to accumulate on; or null.
  void combine(const std::string& where, const GroupStep& own, const std::byte* old,
               const StepBuffers& buffers);

 private:
  void add(const Difference& difference, const std::string& where, const char* what);
  // Rows of this rank's experts (`counts` has as many), and how many ranks its group's tokens visit.
  void count_load(const GroupStep& own, const std::int32_t* counts);

  const Options& options_;
  const Placement& placement_;
  int rank_;
  RankReport& report_;
};

}  // namespace moelane::tools
