#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <thread>

#include "core/layout.hpp"
#include "core/signal.hpp"
#include "support/paths.hpp"
#include "support/player.hpp"

// Several steps in flight, several engines, many layers, slow ranks, epochs that wrap round.
namespace moelane::test {
namespace {

class Lanes : public OnPath {};
MOELANE_ON_EVERY_PATH(Lanes);

using Act = std::function<void(Engine&, std::vector<Player>&)>;

// Plays on an engine with a player for each lane.
std::string act(Scene scene, const Act& part) {
  scene.reserve();
  return complaints(play(Home::threads, scene.ranks, 30, [&](World world) {
    Engine engine(std::move(world), scene.config, Placement::table(scene.table(0), scene.ranks));
    std::vector<Player> players;
    players.reserve(static_cast<std::size_t>(scene.config.in_flight));
    for (int lane = 0; lane < scene.config.in_flight; ++lane) players.emplace_back(engine, scene, lane);
    part(engine, players);
  }));
}

// The halves of three lanes in all kinds of orders; a rank need not take the order of the others.
TEST_P(Lanes, HalvesInterleave) {
  Scene s = scene();
  if (s.calls == Calls::whole) return;
  s.config.in_flight = 3;
  s.nap = 0.0005;
  EXPECT_EQ(act(s,
                [&](Engine& engine, std::vector<Player>& p) {
                  const auto rank = static_cast<std::size_t>(engine.rank());
                  for (int step = 0; step < 60; step += 3) {
                    for (int lane = 0; lane < 3; ++lane) p[static_cast<std::size_t>(lane)].begin(step + lane);
                    // Receiving in an order of its own makes a rank wait for a signal that others send late.
                    const std::size_t a = (static_cast<std::size_t>(step) + rank) % 3,
                                      b = (a + 1 + rank % 2) % 3;
                    const std::size_t c = 3 - a - b;
                    for (Player& one : p) one.dispatch_send();
                    p[a].dispatch_recv();
                    p[b].dispatch_recv();
                    p[a].combine_send();
                    p[c].dispatch_recv();
                    p[c].combine_send();
                    p[b].combine_send();
                    p[b].combine_recv();
                    p[c].combine_recv();
                    p[a].combine_recv();
                  }
                }),
            "");
}

// Two micro-batches, as an inference engine overlaps them: one lane is always a half ahead.
TEST_P(Lanes, MicroBatches) {
  Scene s = scene();
  if (s.calls == Calls::whole) return;
  s.nap = 0.0005;
  EXPECT_EQ(act(s,
                [](Engine&, std::vector<Player>& p) {
                  p[0].begin(0);
                  p[0].dispatch_send();
                  for (int step = 1; step < 40; ++step) {
                    Player& next = p[static_cast<std::size_t>(step % 2)];
                    Player& now = p[static_cast<std::size_t>((step + 1) % 2)];
                    now.dispatch_recv();
                    next.begin(step);
                    next.dispatch_send();
                    now.combine_send();
                    now.combine_recv();
                  }
                  p[1].dispatch_recv();
                  p[1].combine_send();
                  p[1].combine_recv();
                }),
            "");
}

TEST_P(Lanes, AThreadForEach) {
  Scene s = scene();
  s.ranks = 3;
  s.nap = 0.0002;
  EXPECT_EQ(act(s,
                [](Engine&, std::vector<Player>& p) {
                  std::vector<std::string> wrong(p.size());
                  std::vector<std::thread> threads;
                  for (std::size_t lane = 0; lane < p.size(); ++lane) {
                    threads.emplace_back([&, lane] {
                      try {
                        for (int step = 0; step < 40; ++step) p[lane].play(2 * step + static_cast<int>(lane));
                      } catch (const std::exception& error) {
                        wrong[lane] = error.what();
                      }
                    });
                  }
                  for (std::thread& thread : threads) thread.join();
                  require(wrong[0].empty() && wrong[1].empty(), wrong[0] + "; " + wrong[1]);
                }),
            "");
}

TEST_P(Lanes, SlowRanks) {
  for (const int lanes : {1, 2}) {
    Scene s = scene();
    s.config.in_flight = lanes;
    s.config.max_tokens = 3;
    s.nap = 0.002;
    s.seed = static_cast<std::uint64_t>(lanes);
    EXPECT_EQ(run(s, 40), "") << lanes;
  }
}

// A model: the same buffers for all layers, another routing in each, pass after pass.
TEST_P(Lanes, SixtyOneLayers) {
  Scene s = scene();
  s.config.tp_size = 2;
  s.config.dtype = DType::fp8_e4m3;
  s.config.scale_columns = 3;
  EXPECT_EQ(run(s, 3 * 61), "");
}

// The trace has every call and its waits, in order and within each other, and says what was moved.
TEST_P(Lanes, Trace) {
  MOELANE_SKIP_ON_GPU("their events come with status(), tests/gpu/trace_test.cpp");
  Scene s = scene();
  s.nap = 0.001;
  EXPECT_EQ(act(s,
                [&](Engine& engine, std::vector<Player>& p) {
                  std::vector<TraceEvent> events;
                  engine.set_trace([&](const TraceEvent& event) { events.push_back(event); });
                  std::vector<std::string> calls;
                  for (int step = 0; step < 6; ++step) {
                    p[static_cast<std::size_t>(step % 2)].play(step);
                    const bool direct = engine.direct() && s.calls_of(step, true) == Calls::whole;
                    const std::vector<std::string> halves{"dispatch_send", "dispatch_recv", "combine_send",
                                                          "combine_recv"};
                    const std::vector<std::string> wholes{"dispatch", "combine"};
                    calls.insert(calls.end(), direct ? wholes.begin() : halves.begin(),
                                 direct ? wholes.end() : halves.end());
                  }
                  engine.set_trace({});
                  p[0].play(6);
                  std::vector<std::string> seen;
                  std::int64_t end = 0, wait_begin = INT64_MAX;
                  std::uint64_t bytes = 0;
                  for (const TraceEvent& event : events) {
                    const std::string name = event.name;
                    require(event.begin_ns >= end && event.end_ns >= event.begin_ns,
                            name + " overlaps the event before");
                    const std::size_t step =
                        event.step - 1 + (event.step - 1) + static_cast<std::size_t>(event.lane);
                    require(step < 6, name + " is of a step that was not played");
                    if (name == "wait") {
                      require(event.peer >= 0 && event.peer < s.ranks, "a wait is for a peer");
                      wait_begin = std::min(wait_begin, event.begin_ns);
                      continue;
                    }
                    require(event.peer == -1 && event.begin_ns <= wait_begin, name + " contains its waits");
                    wait_begin = INT64_MAX;
                    end = event.end_ns;
                    bytes += event.bytes;
                    seen.push_back(name);
                  }
                  require(seen == calls, "the calls are others, or in another order");
                  require(bytes > 0, "nothing was moved");
                }),
            "");
}

// Two engines of one world, of different shapes, one with its calls within a step of the other.
TEST_P(Lanes, TwoEnginesOfAWorld) {
  Scene a = scene(), b = scene();
  b.config.experts = 5;
  b.config.hidden = 100;
  b.config.dtype = DType::fp8_e4m3;
  b.seed = 77;
  a.reserve();
  b.reserve();
  const auto part = [&](World world) {
    Engine first(world, a.config), second(world, b.config);
    Player one(first, a, 1), two(second, b, 0);
    for (int step = 0; step < 20; ++step) {
      one.begin(step);
      const bool whole = a.calls_of(step, true) == Calls::whole;
      whole ? one.dispatch() : one.dispatch_send();
      two.play(step);
      if (!whole) one.dispatch_recv();
      a.calls_of(step, false) == Calls::whole ? one.combine() : (one.combine_send(), one.combine_recv());
    }
  };
  EXPECT_EQ(complaints(play(Home::threads, a.ranks, 30, part)), "");
}

// Near the end of 40 bits (and of all bits) of epoch. The heap of an engine without steps has no other state.
TEST_P(Lanes, EpochsWrapRound) {
  for (const std::uint64_t start :
       {(std::uint64_t{1} << 40) - 5, std::uint64_t{0} - 5, std::uint64_t{1} << 39}) {
    Scene s = scene();
    s.config.symmetric_bytes = 4096;
    s.reserve();
    s.config.symmetric_bytes += 4096;
    const auto part = [&](World world) {
      Engine engine(world, s.config);
      for (int lane = 0; lane < s.config.in_flight; ++lane) {
        const LaneLayout at(shape_of(s.config, s.ranks, world.rank()), lane);
        auto* heap =
            static_cast<std::byte*>(engine.allocate(lane, DType::uint8, {256}).data) - at.symmetric();
        const auto put = [&](std::uint64_t offset, std::uint64_t word) {
          if (engine.device() == Device::cuda) {
            gpu::upload(heap + offset, &word, sizeof word, *borrow_stream(card_of(engine.rank())));
          } else {
            std::memcpy(heap + offset, &word, sizeof word);
          }
        };
        put(at.state() + offsetof(LaneState, epoch), start);
        for (int source = 0; source < s.ranks; ++source) {
          for (const Signal kind : {Signal::counts, Signal::dispatch, Signal::combine}) {
            put(at.signal(kind, source), pack(start, 0));
          }
          for (int i = 0; at.shape().direct && i < at.count_words(); ++i) {
            put(at.counts(source) + static_cast<std::uint64_t>(i) * 8, pack(start, 0));
          }
        }
      }
      world.barrier();
      std::vector<Player> players;
      players.reserve(2);
      for (int lane = 0; lane < 2; ++lane) players.emplace_back(engine, s, lane);
      for (int step = 0; step < 30; ++step) players[static_cast<std::size_t>(step % 2)].play(step);
    };
    EXPECT_EQ(complaints(play(Home::threads, s.ranks, 30, part)), "") << start;
  }
}

}  // namespace
}  // namespace moelane::test
