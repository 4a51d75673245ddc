#include "bench/card_bench.hpp"

#include <algorithm>

#include "run/timing.hpp"

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
void add_sets(const CardBenchContext& c, Calls& calls) {
  for (std::size_t set = 0; set < c.buffers.size(); ++set) {
    calls.add(static_cast<int>(set) % c.options.config.in_flight, c.buffers[set], c.options.split);
  }
  c.world.barrier();
}

std::vector<std::pair<const char*, std::vector<Call>>> phases(bool split) {
  return {{"dispatch", dispatch_calls(split)}, {"combine", combine_calls(split)}};
}

void measure_events(const CardBenchContext& c, json& out) {
  CallMode mode;
  mode.graphs = c.options.graph;
  mode.together = mode.events = true;
  Calls calls(c.engine, c.world, c.place, mode, nullptr);
  add_sets(c, calls);
  std::map<std::string, std::vector<double>> times;
  for (int step = 0; step < c.options.warmup + std::min(c.options.steps, kSteps); ++step) {
    for (const auto& [phase, parts] : phases(c.options.split)) {
      double us = 0;
      for (const Call call : parts) {
        c.world.barrier();
        const Span span = calls.make(call, step % static_cast<int>(c.buffers.size()));
        us += slowest(c.world, static_cast<double>(span.end) / 1000);
      }
      if (step >= c.options.warmup) times[phase].push_back(us);
    }
  }
  for (const auto& [phase, us] : times) out[phase]["us_events"] = median(us);
}

// One rank after the other, since ranks of one process would wait for each other in the driver, and each a
// few steps in a row, as a caller makes them that does not wait for the card: then nothing is cold.
void measure_launches(const CardBenchContext& c, json& out) {
  Calls calls(c.engine, c.world, c.place, {}, nullptr);
  add_sets(c, calls);
  std::map<Call, std::vector<double>> times;
  for (int turn = 0; turn < c.world.size(); ++turn) {
    c.world.barrier();
    for (int step = 0; step < kLaunches && turn == c.world.rank(); ++step) {
      const int set = step % static_cast<int>(c.buffers.size());
      for (const auto& [phase, parts] : phases(c.options.split)) {
        for (const Call call : parts) times[call].push_back(calls.launch_us(call, set));
      }
    }
  }
  c.place.finish();
  c.engine.status();
  for (const auto& [phase, parts] : phases(c.options.split)) {
    double most = 0;
    for (const Call call : parts) most = std::max(most, slowest(c.world, median(times[call])));
    out[phase]["launch_us"] = most;
  }
}

}  // namespace

json measure_events_and_launches(const CardBenchContext& context) {
  json out;
  measure_events(context, out);
  measure_launches(context, out);
  return out;
}

}  // namespace moelane::tools
