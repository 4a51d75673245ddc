#include "bench/card_call_times.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "run/timed_calls.hpp"

namespace moelane::tools {
namespace {

constexpr int kLaunches = 50, kSteps = 50;

using nlohmann::json;

double slowest(World& world, double us) {
  std::vector<double> all(static_cast<std::size_t>(world.size()));
  world.all_gather(&us, sizeof us, all.data());
  return *std::max_element(all.begin(), all.end());
}

// Without the trace, so that nothing is stamped.
void add_sets(RankContext& c, TimedCalls& calls) {
  for (std::size_t set = 0; set < c.buffers.size(); ++set) {
    calls.add(c.lane_of(static_cast<int>(set)), c.buffers[set], c.options.split);
  }
  c.world.barrier();
}

std::vector<std::pair<const char*, std::vector<EngineCall>>> phases(bool split) {
  return {{"dispatch", dispatch_calls(split)}, {"combine", combine_calls(split)}};
}

void measure_events(RankContext& c, json& out) {
  CallMode mode;
  mode.graphs = c.options.graph;
  mode.aligned_start = mode.events = true;
  TimedCalls calls(*c.engine, c.world, c.device, mode, nullptr);
  add_sets(c, calls);
  std::map<std::string, std::vector<double>> times;
  for (int step = 0; step < c.options.warmup + std::min(c.options.steps, kSteps); ++step) {
    for (const auto& [phase, parts] : phases(c.options.split)) {
      double us = 0;
      for (const EngineCall call : parts) {
        c.world.barrier();
        const TimeSpan span = calls.run(call, step % static_cast<int>(c.buffers.size()));
        us += slowest(c.world, static_cast<double>(span.end) / 1000);
      }
      if (step >= c.options.warmup) times[phase].push_back(us);
    }
  }
  for (const auto& [phase, us] : times) out[phase]["us_events"] = median(us);
}

// One rank after the other, since ranks of one process would wait for each other in the driver, and each a
// few steps in a row, as a caller makes them that does not wait for the card: then nothing is cold.
void measure_launches(RankContext& c, json& out) {
  TimedCalls calls(*c.engine, c.world, c.device, {}, nullptr);
  add_sets(c, calls);
  std::map<EngineCall, std::vector<double>> times;
  for (int turn = 0; turn < c.world.size(); ++turn) {
    c.world.barrier();
    for (int step = 0; step < kLaunches && turn == c.world.rank(); ++step) {
      const int set = step % static_cast<int>(c.buffers.size());
      for (const auto& [phase, parts] : phases(c.options.split)) {
        for (const EngineCall call : parts) times[call].push_back(calls.launch_us(call, set));
      }
    }
  }
  c.device.synchronize();
  c.engine->status();
  for (const auto& [phase, parts] : phases(c.options.split)) {
    double most = 0;
    for (const EngineCall call : parts) most = std::max(most, slowest(c.world, median(times[call])));
    out[phase]["launch_us"] = most;
  }
}

}  // namespace

json measure_events_and_launches(RankContext& rank) {
  json out;
  measure_events(rank, out);
  measure_launches(rank, out);
  return out;
}

}  // namespace moelane::tools
