#include "launch/rank_threads.hpp"

#include <atomic>
#include <thread>

#include "launch/failures.hpp"
#include "launch/injection.hpp"

namespace moelane::tools {

std::vector<RankReport> run_rank_threads(const Options& options, const Arena& arena, const RankMain& main) {
  auto worlds = World::threads(options.ranks, options.config.timeout);
  std::vector<RankReport> reports(static_cast<std::size_t>(options.ranks));
  std::vector<std::thread> threads;
  std::atomic<int> ended{0};
  std::atomic<bool> failed{false};
  FailureReporter failures;
  set_others_gave_up(false);
  for (int r = 0; r < options.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    threads.emplace_back([&, r, i] {
      run_one_rank(
          options, r, [&] { return worlds[i]; }, arena, main, reports[i]);
      failures.report(reports[i]);
      if (reports[i].exit_code != 0) failed = true;
      if (++ended == options.ranks - 1 && failed) set_others_gave_up(true);
    });
  }
  for (auto& thread : threads) thread.join();
  return reports;
}

}  // namespace moelane::tools
