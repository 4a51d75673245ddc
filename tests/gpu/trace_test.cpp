#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/device.hpp"
#include "support/paths.hpp"
#include "support/player.hpp"

// What status() tells of calls that are over, in the card's time.
namespace moelane::test {
namespace {

class Stamps : public OnPath {
 protected:
  void SetUp() override {
    MOELANE_SKIP_ON_CPU("their events come from the calls, and are tested as Lanes.Trace");
  }
};
MOELANE_ON_EVERY_PATH(Stamps);

// The calls of a step that is played, by their names in the trace.
std::vector<std::string> calls_of(const Scene& s, const Engine& engine, int step) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& call, bool whole) {
    if (whole && engine.direct()) return names.push_back(call);
    names.push_back(call + "_send");
    names.push_back(call + "_recv");
  };
  const bool whole = s.calls_of(step, true) == Calls::whole;
  add("dispatch", whole);
  // A combine goes the way of its dispatch.
  add("combine", whole && s.calls_of(step, false) == Calls::whole);
  return names;
}

// Plays steps on both lanes, and looks at what was told of each.
void play_traced(World world, const Scene& s) {
  // The card's time is asked for only while no rank is within a step: it takes memory, and waits for kernels.
  const auto begun = static_cast<std::int64_t>(gpu::now_ns());
  std::int64_t latest = begun;
  Engine engine(world, s.config);
  std::vector<TraceEvent> events;
  engine.set_trace([&](const TraceEvent& event) { events.push_back(event); });
  Player even(engine, s, 0), odd(engine, s, 1);
  for (int step = 0; step < 6; ++step) {
    events.clear();
    (step % 2 == 0 ? even : odd).play(step);
    std::vector<std::string> told;
    std::uint64_t bytes = 0;
    std::int64_t end = begun;
    for (const TraceEvent& event : events) {
      const std::string name = event.name;
      require(event.lane == step % 2, name + " is of lane " + std::to_string(event.lane));
      require(event.step == static_cast<std::uint64_t>(step / 2 + 1),
              name + " is of step " + std::to_string(event.step));
      require(event.begin_ns <= event.end_ns, name + " ends before it begins");
      latest = std::max(latest, event.end_ns);
      if (name == "wait") {
        const bool within = std::any_of(events.begin(), events.end(), [&](const TraceEvent& call) {
          return std::string(call.name) != "wait" && call.begin_ns <= event.begin_ns &&
                 event.end_ns <= call.end_ns;
        });
        require(within, "a wait is not within its call");
        continue;
      }
      require(event.begin_ns >= end, name + " begins before the call before it has ended");
      end = event.end_ns;
      bytes += event.bytes;
      told.push_back(name);
    }
    require(told == calls_of(s, engine, step), "the calls of step " + std::to_string(step) + " are others");
    require(bytes > 0, "nothing was moved in step " + std::to_string(step));
  }
  events.clear();
  engine.status();
  require(events.empty(), "a call was told of twice");
  engine.set_trace({});
  even.play(6);
  engine.status();
  require(events.empty(), "a call was told of that nobody wanted to hear of");
  world.barrier();
  require(latest > begun && latest <= static_cast<std::int64_t>(gpu::now_ns()), "a call ends later than now");
}

TEST_P(Stamps, OfCalls) {
  Scene s = scene();
  s.tokens = [](int, int) { return 5; };
  s.habits.nothing = 0;
  s.reserve();
  EXPECT_EQ(
      complaints(play(Home::threads, s.ranks, 30, [&](World world) { play_traced(std::move(world), s); })),
      "");
}

TEST_P(Stamps, OfReplays) {
  Scene s = scene();
  if (s.calls == Calls::mixed) s.calls = Calls::split;
  s.graphs = s.num_tokens = true;
  s.tokens = [](int, int) { return 5; };
  s.habits.nothing = 0;
  s.reserve();
  const auto part = [&](World world) {
    Engine engine(world, s.config);
    std::vector<TraceEvent> events;
    engine.set_trace([&](const TraceEvent& event) { events.push_back(event); });
    Player player(engine, s, 0);
    for (int step = 0; step < 4; ++step) {
      events.clear();
      player.play(step);
      std::erase_if(events, [](const TraceEvent& event) { return std::string(event.name) == "wait"; });
      require(events.size() == calls_of(s, engine, step).size(),
              "the calls of step " + std::to_string(step) + " are others");
      for (const TraceEvent& event : events) {
        require(event.step == static_cast<std::uint64_t>(step + 1), "a replay has another step's stamps");
      }
    }
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 30, part)), "");
}

}  // namespace
}  // namespace moelane::test
