#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "cuda/device.hpp"
#include "support/paths.hpp"
#include "support/player.hpp"

// Ranks that do not come: the kernels that wait for them end within their bound, with the whole sentence; and
// everything can be taken down afterwards, in any order. The protocol tests have more of these, on every
// path.
namespace moelane::test {
namespace {

constexpr int kAbsent = 1;  // of two ranks, so that a kernel waits for one only
constexpr double kBound = 0.5;

struct Stall {
  const char* path;
  bool in_combine;
  const char *call, *phase;
};
void PrintTo(const Stall& stall, std::ostream* os) { *os << stall.path << " in " << stall.call; }

class Stalls : public testing::TestWithParam<Stall> {
 protected:
  static Scene scene(double timeout = kBound) {
    Scene s;
    for (const Path& path : paths()) {
      if (std::string(path.name) == GetParam().path) s = scene_on(path, Layout::padded);
    }
    s.ranks = 2;
    s.config.timeout = timeout;
    s.reserve();
    return s;
  }

  // Plays three good steps; then makes the call that waits for the absent rank, on lane 0.
  static void good_steps(Player& player) {
    for (int step = 0; step < 3; ++step) player.play(step);
  }
  static bool split() { return std::string(GetParam().path) == "put_split"; }
  static void dispatch(Player& player) {
    player.begin(3);
    split() ? (player.dispatch_send(), player.dispatch_recv()) : player.dispatch();
  }
  static void combine(Player& player) {
    split() ? (player.combine_send(), player.combine_recv()) : player.combine();
  }
  static std::string sentence(const std::string& what) {
    return "rank 0 in " + std::string(GetParam().call) + " " + what + " (phase " + GetParam().phase +
           ", step 4, lane 0)";
  }
  static constexpr const char* kSeen = ": saw step 3, needed step 4";

  // Rank 0's last call of the step fails as `check` wants; rank 1 does `meanwhile` instead.
  static std::string play_stalled(const Scene& s,
                                  const std::function<void(Engine&, const std::function<void()>&)>& check,
                                  const std::function<void(Engine&)>& meanwhile) {
    return complaints(play(Home::threads, s.ranks, 20, [&](World world) {
      std::optional<Engine> engine(std::in_place, world, s.config);
      {
        Player player(*engine, s, 0);
        good_steps(player);
        if (GetParam().in_combine) dispatch(player);
        world.barrier();
        if (world.rank() == kAbsent) {
          meanwhile(*engine);
        } else {
          check(*engine, [&] { GetParam().in_combine ? combine(player) : dispatch(player); });
        }
      }
      engine.reset();
      world.barrier();
    }));
  }
};
INSTANTIATE_TEST_SUITE_P(Path, Stalls,
                         testing::Values(Stall{"direct_whole", false, "dispatch", "counts"},
                                         Stall{"direct_whole", true, "combine", "combine"},
                                         Stall{"put_split", false, "dispatch_recv", "dispatch"},
                                         Stall{"put_split", true, "combine_recv", "combine"}),
                         [](const testing::TestParamInfo<Stall>& stall) {
                           return std::string(stall.param.path) + "_" + stall.param.call;
                         });

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void require_same(const std::string& sentence, const std::string& wanted) {
  require(sentence == wanted, "\"" + sentence + "\" instead of \"" + wanted + "\"");
}

TEST_P(Stalls, TimeOutInWords) {
  const Scene s = scene();
  const auto check = [&](Engine& engine, const std::function<void()>& call) {
    std::string said;
    const double took = seconds_of([&] { said = refusal(ErrorKind::timeout, call); });
    require(took > kBound - 0.05 && took < kBound + 1, "it took " + std::to_string(took) + " s");
    require_same(said, sentence("waited 0.5 s for rank 1") + kSeen);
    require(!engine.healthy(), "the engine is not healthy any more");
    engine.status();  // it has been told
    for (int lane = 0; lane < 2; ++lane) {
      require_words(refusal(ErrorKind::aborted, [&] { engine.dispatch(lane, {}, {}); }),
                    {"dispatch on rank 0 is refused, as the engine ended: " + said});
    }
  };
  EXPECT_EQ(play_stalled(s, check, [](Engine&) { pause(2 * kBound); }), "");
}

TEST_P(Stalls, EndWhenThePeerCloses) {
  const Scene s = scene(20);
  const auto part = [&](World world) {
    std::optional<Engine> engine(std::in_place, world, s.config);
    std::optional<Player> player(std::in_place, *engine, s, 0);
    good_steps(*player);
    if (GetParam().in_combine) dispatch(*player);
    world.barrier();
    if (world.rank() == kAbsent) {
      pause(0.1);
      player.reset();
      engine.reset();
    } else {
      std::string said;
      const auto call = [&] { GetParam().in_combine ? combine(*player) : dispatch(*player); };
      const double took = seconds_of([&] { said = refusal(ErrorKind::aborted, call); });
      require(took < 5, "it took " + std::to_string(took) + " s");
      require_same(said, sentence("waited for rank 1") + ", which closed its engine" + kSeen);
    }
    world.barrier();
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part)), "");
}

TEST_P(Stalls, EndWithAbort) {
  const Scene s = scene(20);
  const auto check = [&](Engine& engine, const std::function<void()>& call) {
    std::thread stopper([&] {
      pause(0.1);
      engine.abort("enough of it");
    });
    std::string said;
    const double took = seconds_of([&] { said = refusal(ErrorKind::aborted, call); });
    stopper.join();
    require(took < 5, "it took " + std::to_string(took) + " s");
    require_same(said, sentence("was aborted while it waited for rank 1") + kSeen + "; abort: enough of it");
    require(!engine.healthy(), "the engine is not healthy any more");
  };
  EXPECT_EQ(play_stalled(s, check, [](Engine&) { pause(0.5); }), "");
}

// Whole engines, worlds and streams go while a call of theirs waits, or after it has failed; then the card is
// as good as new.
TEST(TeardownAfterAStall, InAnyOrder) {
  MOELANE_SKIP_ON_CPU("their calls are over when they return");
  Scene s = scene_on({"", Way::automatic, Calls::whole}, Layout::padded);
  s.config.timeout = kBound;
  s.reserve();
  enum class First { engine, world, tensors };
  for (const First first : {First::engine, First::world, First::tensors}) {
    for (const bool waited : {false, true}) {
      const auto part = [&](World given) {
        std::optional<World> world(std::move(given));
        const int rank = world->rank();
        std::optional<Engine> engine(std::in_place, *world, s.config);
        std::optional<Player> player(std::in_place, *engine, s, 0);
        player->play(0);
        world->barrier();
        if (first == First::world) world.reset();
        if (rank != 3) {  // which never comes
          player->begin(2);
          engine->dispatch(0, player->input(), player->output(), player->stream());
          if (waited) player->wait();
        }
        if (first == First::tensors) {
          player->wait();
          player.reset();
        }
        // An engine may end with its call on the stream, but its tensors must live until then.
        engine.reset();
        if (player) player->wait();
      };
      const double took =
          seconds_of([&] { EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part)), ""); });
      EXPECT_LT(took, 10) << static_cast<int>(first) << waited;
    }
  }
  EXPECT_EQ(run(s, 4), "");
}

// A graph may be launched after the engine has ended: its kernels do nothing, and at once.
TEST(ReplaysAfterAStall, DoNothing) {
  MOELANE_SKIP_ON_CPU("graphs are CUDA's");
  Scene s = scene_on({"", Way::automatic, Calls::whole}, Layout::padded);
  s.ranks = 2;
  s.config.timeout = kBound;
  s.reserve();
  const auto part = [&](World world) {
    Engine engine(world, s.config);
    Player player(engine, s, 0);
    player.begin(0);
    const gpu::Graph graph = gpu::Graph::capture(
        player.stream(), [&] { engine.dispatch(0, player.input(), player.output(), player.stream()); });
    if (world.rank() == 0) {
      graph.launch(player.stream());
      require_words(
          refusal(ErrorKind::timeout, [&] { player.finish(); }),
          {"rank 0 in dispatch waited 0.5 s for rank 1 (phase counts, step 1, lane 0): saw step 0"});
      const double took = seconds_of([&] {
        for (int n = 0; n < 20; ++n) graph.launch(player.stream());
        player.finish();
      });
      require(took < kBound, "they took " + std::to_string(took) + " s");
    }
    world.barrier();
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part)), "");
}

}  // namespace
}  // namespace moelane::test
