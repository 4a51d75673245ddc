#include "run/inject.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "launch/injection.hpp"

namespace moelane::tools {

void inject(RankContext& rank, int step) {
  const Injection& injection = rank.options.injection;
  if (injection.rank != rank.rank() || injection.step != step) return;
  if (!injection.die) {
    stall(rank.rank(), injection.seconds);
  } else if (rank.options.threads()) {
    // Kept beyond the program's end: a dead rank says no farewell; nor does it give memory back, for which
    // a card would wait for the kernels that wait for this rank.
    static auto& dead = *new std::pair<std::unique_ptr<Engine>, std::vector<StepBuffers>>;
    dead = {std::move(rank.engine), std::move(rank.buffers)};
    throw InjectedDeath{fmt::format("rank {} died, as --inject asked", rank.rank())};
  } else {
    kill(getpid(), SIGKILL);
  }
}

}  // namespace moelane::tools
