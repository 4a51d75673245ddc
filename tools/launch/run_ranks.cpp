#include "launch/run_ranks.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "launch/failures.hpp"
#include "launch/launched_rank.hpp"
#include "launch/rank_processes.hpp"
#include "launch/rank_threads.hpp"
#include "moelane/error.hpp"

namespace moelane::tools {

std::vector<RankReport> run_ranks(const Options& options, std::size_t arena_bytes, const RankMain& main) {
  if (options.launched) return run_launched_rank(options, arena_bytes, main);
  Arena arena;
  if (arena_bytes > 0) {
    void* base =
        mmap(nullptr, arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      throw Error(ErrorKind::transport, fmt::format("{} bytes for floors and baselines cannot be mapped: {}",
                                                    arena_bytes, std::strerror(errno)));
    }
    arena = {static_cast<std::byte*>(base), arena_bytes};
  }
  auto reports =
      options.threads() ? run_rank_threads(options, arena, main) : run_rank_processes(options, arena, main);
  if (arena.base != nullptr) munmap(arena.base, arena.bytes);
  print_bad_input(reports);
  return reports;
}

}  // namespace moelane::tools
