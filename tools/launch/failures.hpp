#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "launch/run_ranks.hpp"

// What fails a rank: how it gets into the rank's report, and is printed.
namespace moelane::tools {

// Thrown by a rank that stops, without a failure of its own, because another rank's input is bad and says so.
struct StoppedByPeer {
  std::string sentence;
};

// Runs one rank, which `join`s the others first, and writes what it threw into its report.
void run_one_rank(const Options& options, int rank, const std::function<World()>& join, const Arena& arena,
                  const RankMain& main, RankReport& report);

void print_failure(const std::string& sentence);

// About bad input: one sentence, for all ranks.
void print_bad_input(const std::vector<RankReport>& reports);

// Prints what failed a rank, as soon as it is known. What fails all ranks alike (they cannot be given memory,
// say) is printed once; bad input is left to print_bad_input. Threads may share one.
class FailureReporter {
 public:
  void report(const RankReport& report);

 private:
  std::mutex mutex_;
  std::set<std::string> printed_;
};

}  // namespace moelane::tools
