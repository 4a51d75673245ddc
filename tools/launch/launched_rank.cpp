#include "launch/launched_rank.hpp"

#include <algorithm>
#include <cstdint>

#include "launch/failures.hpp"
#include "transport/world_impl.hpp"

namespace moelane::tools {
namespace {

// Memory for floors and baselines where the ranks have no parent that maps it: heaps of one machine lie one
// behind the other.
Arena arena_of(const World& world, std::size_t bytes, detail::Heaps& heaps) {
  if (bytes == 0 || !world.impl().all_near()) return {};
  const std::size_t ranks = static_cast<std::size_t>(world.size()), page = 4096;
  heaps = world.impl().map_heaps(0, (bytes / ranks / page + 1) * page);
  return {heaps.bases[0], heaps.bytes * ranks};
}

}  // namespace

std::vector<RankReport> run_launched_rank(const Options& options, std::size_t arena_bytes,
                                          const RankMain& main) {
  const double timeout = options.config.timeout;
  const World world = options.over_mpi() ? World::mpi(timeout) : World::shm_from_environment(timeout);
  detail::Heaps heaps;
  const Arena arena = arena_of(world, arena_bytes, heaps);
  RankReport mine;
  run_one_rank(
      options, world.rank(), [&] { return world; }, arena, main, mine);
  print_failure(mine.sentence);
  if (mine.exit_code == 3) return {mine};  // peers may be gone: no exchange
  const std::vector<std::uint8_t> bytes = nlohmann::json::to_cbor(to_json(mine));
  const auto size = static_cast<std::uint64_t>(bytes.size());
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world.size()));
  World(world).all_gather(&size, sizeof size, sizes.data());
  std::size_t most = 0;
  for (const std::uint64_t s : sizes) most = std::max(most, static_cast<std::size_t>(s));
  std::vector<std::uint8_t> padded(bytes), all(most * sizes.size());
  padded.resize(most);
  World(world).all_gather(padded.data(), most, all.data());
  std::vector<RankReport> reports;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    const auto* from = all.data() + r * most;
    reports.push_back(from_json(nlohmann::json::from_cbor(from, from + sizes[r])));
  }
  return reports;
}

}  // namespace moelane::tools
