#pragma once

#include <memory>
#include <vector>

#include "moelane/engine.hpp"
#include "moelane/placement.hpp"
#include "moelane/world.hpp"
#include "routing/workload.hpp"
#include "run/rank_device.hpp"
#include "run/step_buffers.hpp"
#include "run/step_checks.hpp"

namespace moelane::tools {

// What one rank has, whether it runs or measures: its part of the world, its device, its engine, and the
// buffers that the engine's calls read and write.
struct RankContext {
  // Makes the engine and `sets` sets of buffers, which the lanes take in turn. Collective.
  RankContext(const Options& options, const RoutingSource& routing, World world, int sets,
              RankReport& report);
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  int rank() const { return world.rank(); }
  int group() const { return world.rank() / config.tp_size; }
  bool direct() const { return report.way == "direct"; }

  std::vector<GroupStep> step_of_all_groups(int step) const;
  const GroupStep& own(const std::vector<GroupStep>& groups) const {
    return groups[static_cast<std::size_t>(group())];
  }
  int lane_of(int set) const { return set % config.in_flight; }
  StepBuffers& buffers_of(int set) { return buffers[static_cast<std::size_t>(set)]; }

  // Reports what does not change from step to step: heap, way, multiprocessors.
  void describe();
  // Brings what was dispatched to the host, and runs this rank's toy experts there.
  void fetch(int set);
  void run_experts(int set);

  // Adds the bytes that a phase moved to the report.
  void count_bytes(const TraceEvent& event);
  // `floor`: {"dispatch_us", "combine_us", ...}, or null.
  void report_floor(const nlohmann::json& floor);

  const Options& options;
  Config config;
  Placement placement;
  Workload workload;
  World world;
  RankDevice device;
  RankReport& report;
  StepChecks checks;
  // Memory of a card goes back last: that would wait for peers that wait for this rank's farewell.
  std::vector<StepBuffers> buffers;
  std::unique_ptr<Engine> engine;
};

}  // namespace moelane::tools
