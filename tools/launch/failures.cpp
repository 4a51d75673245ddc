#include "launch/failures.hpp"

#include <fmt/format.h>

#include <exception>

#include "launch/injection.hpp"
#include "machine/cards.hpp"
#include "moelane/error.hpp"
#include "report/verdict.hpp"

namespace moelane::tools {

void run_one_rank(const Options& options, int rank, const std::function<World()>& join, const Arena& arena,
                  const RankMain& main, RankReport& report) {
  report.rank = rank;
  try {
    World world = join();
    main(options.on_cards() ? join_cards(std::move(world)) : std::move(world), arena, report);
  } catch (const Error& error) {
    report.verdict = verdict_of(error);
    report.sentence = error.what();
    report.exit_code = exit_code_of(error);
  } catch (const InjectedDeath& death) {
    report.verdict = "died";
    report.sentence = death.sentence;
    report.exit_code = 3;
  } catch (const StoppedByPeer& stopped) {
    report.verdict = "stopped";
    report.sentence = stopped.sentence;
    report.exit_code = 2;
  } catch (const std::exception& error) {
    report.verdict = "transport";
    report.sentence = fmt::format("rank {}: {}", rank, error.what());
    report.exit_code = 3;
  }
}

void print_failure(const std::string& sentence) {
  if (!sentence.empty()) fmt::print(stderr, "moelane: {}\n", sentence);
}

void print_bad_input(const std::vector<RankReport>& reports) {
  for (const RankReport& r : reports) {
    if (r.exit_code == 2 && r.verdict != "stopped") return print_failure(r.sentence);
  }
}

void FailureReporter::report(const RankReport& report) {
  if (report.exit_code == 2) return;
  const std::lock_guard lock(mutex_);
  if (printed_.insert(report.sentence).second) print_failure(report.sentence);
}

}  // namespace moelane::tools
