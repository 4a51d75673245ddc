#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>

#include "core/layout.hpp"
#include "support/paths.hpp"
#include "support/player.hpp"

// Ranks that do not come, leave, fail or are told to stop: every wait ends within its bound, with a sentence
// that names waiter, peer, phase, step, what was seen and what was needed.
namespace moelane::test {
namespace {

class Waits : public OnHomedPath {
 protected:
  Scene ready(double timeout) const {
    Scene s = scene();
    s.config.timeout = timeout;
    s.reserve();
    return s;
  }
};
MOELANE_ON_HOMED_PATHS(Waits);

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void dispatch(const Scene& s, Player& player, int step) {
  player.begin(step);
  if (s.calls_of(step, true) == Calls::whole) {
    player.dispatch();
  } else {
    player.dispatch_send();
    player.dispatch_recv();
  }
}

void combine(const Scene& s, Player& player, int step) {
  if (s.calls_of(step, false) == Calls::whole) {
    player.combine();
  } else {
    player.combine_send();
    player.combine_recv();
  }
}

// Whether `step`'s dispatch goes directly.
bool goes_directly(const Scene& s, const Engine& engine, int step) {
  return engine.direct() && s.calls_of(step, true) == Calls::whole;
}

void require_refused(Engine& engine, Player& player, const std::string& why) {
  require(!engine.healthy(), "the engine is not healthy any more");
  const std::string rank = std::to_string(engine.rank());
  for (int lane = 0; lane < 2; ++lane) {
    require_words(
        refusal(ErrorKind::aborted, [&] { engine.dispatch(lane, player.input(), player.output()); }),
        {"dispatch on rank " + rank + " is refused, as the engine ended: ", why});
    require_words(refusal(ErrorKind::aborted, [&] { engine.dispatch_send(lane, player.input()); }), {why});
    require_words(refusal(ErrorKind::aborted, [&] { engine.combine_recv(lane, player.rows()); }), {why});
  }
}

TEST_P(Waits, EndWhereARankDoesNotCome) {
  const Scene s = ready(0.3);
  constexpr int kStep = 3;
  for (const bool in_combine : {false, true}) {
    const auto part = [&](World world) {
      const int rank = world.rank();
      Engine engine(world, s.config);
      Player player(engine, s, 1);
      for (int step = 0; step < kStep; ++step) player.play(step);
      world.barrier();
      if (in_combine) dispatch(s, player, kStep);
      if (rank == 2) {
        world.barrier();
        return;
      }
      std::string sentence;
      const double took = seconds_of([&] {
        sentence = refusal(ErrorKind::timeout,
                           [&] { in_combine ? combine(s, player, kStep) : dispatch(s, player, kStep); });
      });
      require(took > 0.25 && took < 5, "it took " + std::to_string(took) + " s");
      const bool direct = goes_directly(s, engine, kStep);
      const std::string phase = in_combine ? "combine" : direct ? "counts" : "dispatch";
      const bool half = s.calls_of(kStep, !in_combine) == Calls::split || !direct;
      const std::string call = std::string(in_combine ? "combine" : "dispatch") + (half ? "_recv" : "");
      // What was seen last depends on the path: mixed calls may not have used this signal before.
      require_words(sentence, {"rank " + std::to_string(rank) + " in " + call + " waited 0.3 s for rank 2",
                               "(phase " + phase + ", step 4, lane 1)", ": saw step ", ", needed step 4"});
      if (s.calls != Calls::mixed) require_words(sentence, {"saw step 3, needed step 4"});
      require_refused(engine, player, sentence);
      world.barrier();
    };
    EXPECT_EQ(played(s, part), "") << (in_combine ? "combine" : "dispatch");
  }
}

// Those who wait for a rank that gave up hear at once, and whom it gave up on.
TEST_P(Waits, SayWhomAPeerFailedOver) {
  const Scene hasty = ready(0.3), patient = ready(60);
  const auto part = [&](World world) {
    const int rank = world.rank();
    const Scene& s = rank == 0 ? hasty : patient;
    Engine engine(world, s.config);
    Player player(engine, s, 0), other(engine, s, 1);
    dispatch(s, player, 0);
    world.barrier();
    if (rank == 0) {
      // The others do not combine on lane 0. A GPU rank waits for all of them at once.
      const std::string sentence = refusal(ErrorKind::timeout, [&] { combine(s, player, 0); });
      require_words(sentence, {on_gpu() ? "waited 0.3 s for rank " : "waited 0.3 s for rank 1 ",
                               "(phase combine, step 1, lane 0)"});
    } else {
      std::string sentence;
      const double took =
          seconds_of([&] { sentence = refusal(ErrorKind::aborted, [&] { dispatch(s, other, 1); }); });
      require(took < 10, "it took " + std::to_string(took) + " s");
      require_words(sentence, {" waited for rank 0 (phase ", "step 1, lane 1), which failed over rank ",
                               on_gpu() ? ": saw step 0" : " 1: saw step 0"});
      require_refused(engine, other, sentence);
    }
    world.barrier();
  };
  EXPECT_EQ(played(hasty, part), "");
}

TEST_P(Waits, EndWhenAPeerCloses) {
  const Scene s = ready(60);
  const auto part = [&](World world) {
    Engine engine(world, s.config);
    Player player(engine, s, 0);
    for (int step = 0; step < 3; ++step) player.play(step);
    if (world.rank() == 1) return;  // and its engine ends
    std::string sentence;
    const double took =
        seconds_of([&] { sentence = refusal(ErrorKind::aborted, [&] { dispatch(s, player, 3); }); });
    require(took < 10, "it took " + std::to_string(took) + " s");
    require_words(sentence,
                  {"rank " + std::to_string(world.rank()) + " in dispatch", " waited for rank 1 (phase ",
                   "step 4, lane 0), which closed its engine: saw step ", "needed step 4"});
    require_refused(engine, player, sentence);
  };
  EXPECT_EQ(played(s, part), "");
}

// A rank may leave as soon as its own last combine is done; the others still get everything from it.
TEST_P(Waits, DoNotEndForAPeerThatHasSentAll) {
  Scene s = ready(20);
  s.nap = 0.003;
  for (int n = 0; n < 5; ++n) {
    s.seed = static_cast<std::uint64_t>(n);
    EXPECT_EQ(run(s, 1 + n % 2, std::get<Home>(GetParam())), "");
  }
}

TEST_P(Waits, EndWithAbort) {
  // A kernel without a bound that misses the abort would hold the card for ever.
  const Scene s = ready(on_gpu() ? 20 : std::numeric_limits<double>::infinity());
  const auto part = [&](World world) {
    const int rank = world.rank();
    Engine engine(world, s.config);
    Player player(engine, s, 0), other(engine, s, 1);
    player.play(0);
    world.barrier();
    if (rank == 0) {
      // Nobody else comes to lane 0: this would wait for ever.
      std::thread stopper([&] {
        pause(0.1);
        engine.abort("enough of it");
      });
      std::string sentence;
      const double took =
          seconds_of([&] { sentence = refusal(ErrorKind::aborted, [&] { dispatch(s, player, 1); }); });
      stopper.join();
      require(took < 5, "it took " + std::to_string(took) + " s");
      require_words(sentence, {"rank 0 in dispatch", " was aborted while it waited for rank ",
                               on_gpu() ? " (phase " : " 1 (phase ",
                               "step 2, lane 0): saw step 1, needed step 2", "enough of it"});
      require_refused(engine, player, "abort: enough of it");
    } else {
      // The others wait for rank 0 on lane 1.
      const std::string sentence = refusal(ErrorKind::aborted, [&] { dispatch(s, other, 1); });
      require_words(sentence, {" waited for rank 0 (phase ",
                               "step 1, lane 1), which aborted: saw step 0, needed step 1"});
    }
    world.barrier();
  };
  EXPECT_EQ(played(s, part), "");
}

TEST_P(Waits, EndBeforeTheyBeginAfterAbort) {
  const Scene s = ready(20);
  const auto part = [&](World world) {
    Engine engine(std::move(world), s.config);
    Player player(engine, s, 0);
    player.begin(0);
    engine.abort("not today");
    engine.abort("another reason");  // the first stands
    require_refused(engine, player, "abort: not today");
  };
  EXPECT_EQ(played(s, part), "");
}

// Rows and answers that are sent one by one are counted; here one is made to be missing.
TEST(Counters, SayHowManyRowsCame) {
  MOELANE_SKIP_ON_GPU("they do not send by puts what they can address");
  for (const bool in_combine : {false, true}) {
    Scene s = scene_on({"", Way::put, Calls::split, true}, Layout::padded);
    s.config.timeout = 0.3;
    s.config.symmetric_bytes = 4096;
    s.habits = {0, 0, 0, 0, false};
    s.tokens = [](int, int) { return 6; };
    const auto part = [&](World world) {
      Engine engine(world, s.config);
      Player player(engine, s, 0);
      player.play(0);
      world.barrier();
      if (in_combine) dispatch(s, player, 1);
      world.barrier();
      if (world.rank() == 0) {
        const LaneLayout at(shape_of(s.config, s.ranks, 0), 0);
        auto* heap = static_cast<std::byte*>(engine.allocate(0, DType::uint8, {1}).data) - at.symmetric();
        --*reinterpret_cast<std::uint64_t*>(heap + at.signal(in_combine ? Signal::answers : Signal::rows, 3));
      }
      world.barrier();
      const auto step = [&] { in_combine ? combine(s, player, 1) : dispatch(s, player, 1); };
      if (world.rank() > 0) {
        step();
      } else {
        const std::string sentence = refusal(ErrorKind::timeout, step);
        const std::string phase = in_combine ? "answers" : "dispatched rows";
        require_words(sentence, {"waited 0.3 s for rank 3 (phase " + phase + ", step 2, lane 0): saw ",
                                 " rows, needed "});
        const auto number = [&](const std::string& after) {
          return std::stoi(sentence.substr(sentence.find(after) + after.size()));
        };
        require(number("saw ") + 1 == number("needed "), sentence);
      }
      world.barrier();
    };
    EXPECT_EQ(complaints(play(Home::threads, s.ranks, 8, part)), "");
  }
}

}  // namespace
}  // namespace moelane::test
