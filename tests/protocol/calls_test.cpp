#include <gtest/gtest.h>

#include "support/spoil.hpp"

// Calls at the wrong time, of the wrong kind, on the wrong lane; expert tables and symmetric tensors that
// cannot be.
namespace moelane::test {
namespace {

class BadCalls : public OnPath {};
MOELANE_ON_EVERY_PATH(BadCalls);

// Every call that a lane can get, by name.
std::vector<std::pair<std::string, std::function<void(int)>>> calls_of(Engine& engine, Player& p,
                                                                       const TensorView& out) {
  return {
      {"dispatch_send", [&](int lane) { engine.dispatch_send(lane, p.input()); }},
      {"dispatch_recv", [&](int lane) { engine.dispatch_recv(lane, p.output()); }},
      {"combine_send", [&](int lane) { engine.combine_send(lane, p.rows()); }},
      {"combine_recv", [&](int lane) { engine.combine_recv(lane, out); }},
      {"dispatch", [&](int lane) { engine.dispatch(lane, p.input(), p.output()); }},
      {"combine", [&](int lane) { engine.combine(lane, p.rows(), out); }},
  };
}

TEST_P(BadCalls, OutOfOrder) {
  Scene s = spoiled_scene(scene());
  s.reserve();
  const auto part = [&](World world) {
    Engine engine(std::move(world), s.config);
    Player player(engine, s, 0);
    std::vector<std::uint16_t> memory(kTokens * kHidden);
    const TensorView out = TensorView::dense(memory.data(), DType::bf16, {kTokens, kHidden}, engine.device());
    const auto all = calls_of(engine, player, out);
    // All calls but those two are refused, and the sentence says which one is due.
    const auto only = [&](const std::string& one, const std::string& other, const std::string& due) {
      for (const auto& [name, call] : all) {
        if (name == one || name == other) continue;
        require_words(refusal(ErrorKind::argument, [&] { call(0); }),
                      {name + " on lane 0 is out of order, allowed is " + due});
      }
    };
    for (int step = 0; step < 3; ++step) {
      player.begin(step);
      only("dispatch", "dispatch_send", "dispatch or dispatch_send");
      if (s.calls_of(step, true) == Calls::split) {
        player.dispatch_send();
        only("dispatch_recv", "", "dispatch_recv");
        player.dispatch_recv();
      } else {
        player.dispatch();
      }
      only("combine", "combine_send", "combine or combine_send");
      if (s.calls_of(step, false) == Calls::split) {
        player.combine_send();
        only("combine_recv", "", "combine_recv");
        player.combine_recv();
      } else {
        player.combine();
      }
    }
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part)), "");
}

TEST_P(BadCalls, WrongLane) {
  Scene s = spoiled_scene(scene());
  s.reserve();
  const auto part = [&](World world) {
    Engine engine(std::move(world), s.config);
    Player player(engine, s, 0);
    player.begin(0);
    for (const int lane : {-1, 1, INT_MAX, INT_MIN}) {
      const std::string words = "lane is " + std::to_string(lane) + ", allowed are 0 to 0";
      for (const auto& [name, call] : calls_of(engine, player, player.rows())) {
        require_words(refusal(ErrorKind::argument, [&] { call(lane); }), {words});
      }
      require_words(refusal(ErrorKind::argument, [&] { engine.allocate(lane, DType::bf16, {1}); }), {words});
    }
    player.play(0);
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part)), "");
}

TEST_P(BadCalls, WrongKind) {
  Scene s = spoiled_scene(scene());
  s.reserve();
  const auto part = [&](World world) {
    Engine engine(std::move(world), s.config);
    if (!engine.direct()) return;
    Player player(engine, s, 0);
    player.begin(0);
    if (s.config.way == Way::direct) {
      require_words(refusal(ErrorKind::argument, [&] { engine.dispatch_send(0, player.input()); }),
                    {"dispatch_send is refused with way direct, allowed are the whole calls"});
    }
    player.dispatch();
    require_words(refusal(ErrorKind::argument, [&] { engine.combine_send(0, player.rows()); }),
                  {"combine_send on lane 0 is refused", "direct way, allowed is combine"});
    player.combine();
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part)), "");
}

TEST_P(BadCalls, Tables) {
  Scene s = spoiled_scene(scene());
  s.config.in_flight = 2;
  s.reserve();
  const auto part = [&](World world) {
    const auto wrong = [&](const Placement& table, const std::string& words) {
      const std::string sentence = "placement is for " + words + ", allowed is 16 on 2";
      require_words(refusal(ErrorKind::argument, [&] { Engine(world, s.config, table); }), {sentence});
      return sentence;
    };
    const Placement few = Placement::even(15, 2), wide = Placement::even(16, 3);
    const std::string of_few = wrong(few, "15 experts on 2 ranks"),
                      of_wide = wrong(wide, "16 experts on 3 ranks");
    Engine engine(world, s.config);
    Player player(engine, s, 1);
    const auto refused = [&](const Placement& table, const std::string& words) {
      require_words(refusal(ErrorKind::argument, [&] { engine.set_placement(table); }), {words});
      require(engine.placement().fingerprint() == Placement::even(16, 2).fingerprint(),
              "the table is the old one");
    };
    refused(few, of_few);
    refused(wide, of_wide);
    player.begin(0);
    const Placement other = Placement::table({1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 2);
    if (s.calls_of(0, true) == Calls::split) {
      player.dispatch_send();
      refused(other,
              "set_placement is refused while lane 1 is within a step, allowed is dispatch_recv first");
      player.dispatch_recv();
    } else {
      player.dispatch();
    }
    refused(
        other,
        "set_placement is refused while lane 1 is within a step, allowed is combine or combine_send first");
    s.calls_of(0, false) == Calls::whole ? player.combine() : (player.combine_send(), player.combine_recv());
    player.play(1);
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part)), "");
}

TEST(SymmetricTensors, OnlyWhatThereIs) {
  Config config;
  config.experts = config.topk = config.hidden = config.max_tokens = 1;
  config.symmetric_bytes = 1000;
  const World world = World::threads(1).front();
  Engine engine(on_gpu() ? seated(world) : world, config);
  const auto refused = [&](std::initializer_list<std::int64_t> shape, const std::string& words) {
    require_words(refusal(ErrorKind::argument, [&] { engine.allocate(0, DType::fp32, shape); }), {words});
  };
  try {
    refused({}, "shape has 0 dimensions, allowed are 1 to 4");
    refused({1, 1, 1, 1, 1}, "shape has 5 dimensions, allowed are 1 to 4");
    refused({4, -1}, "shape has an extent of -1");
    refused({1 << 20, 1 << 20, 1 << 20, 1 << 20}, "shape has an extent of 1048576");
    refused({INT64_MAX, 2}, "shape has an extent of 9223372036854775807");
    refused({251},
            "symmetric_bytes is 1000, of which lane 0 has 1000 left, allowed is at least the 1004 bytes");
    const TensorView first = engine.allocate(0, DType::fp32, {5, 10});
    EXPECT_EQ(first.ndim, 2);
    EXPECT_EQ(first.strides[0], 10);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data) % 256, 0U);
    refused({187},
            "symmetric_bytes is 1000, of which lane 0 has 744 left, allowed is at least the 748 bytes");
    const TensorView second = engine.allocate(0, DType::fp32, {186});
    EXPECT_EQ(static_cast<std::byte*>(second.data) - static_cast<std::byte*>(first.data), 256);
    refused({1}, "has 0 left, allowed is at least the 4 bytes");
    EXPECT_NE(engine.allocate(1, DType::fp32, {250}).data, first.data);  // the other lane has its own
  } catch (const Wrong& wrong) {
    FAIL() << wrong.what();
  }
}

}  // namespace
}  // namespace moelane::test
