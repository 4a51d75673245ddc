#include <gtest/gtest.h>

#include <chrono>

#include "support/spoil.hpp"

// Ranks that disagree: words for everybody, never a hang.
namespace moelane::test {
namespace {

using Clock = std::chrono::steady_clock;

// Plays a part that has to fail on every rank, in less than the bound. Some rank says mismatch and all of
// `words`; the others say so too, or that a peer failed.
void expect_mismatch(int ranks, const std::vector<std::string>& words, const Part& part,
                     const std::string& what) {
  const auto begin = Clock::now();
  const std::vector<Ending> endings = play(Home::threads, ranks, 10, part);
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin).count(), 8.0) << what;
  bool said = false;
  for (const Ending& ending : endings) {
    EXPECT_TRUE(ending.threw) << what;
    EXPECT_TRUE(ending.kind == ErrorKind::mismatch || ending.kind == ErrorKind::aborted)
        << what << complaints(endings);
    bool all = ending.kind == ErrorKind::mismatch;
    for (const std::string& word : words) all = all && ending.sentence.find(word) != std::string::npos;
    said = said || all;
  }
  EXPECT_TRUE(said) << what << ": nobody says \"" << words.front() << "\"\n" << complaints(endings);
}

Scene four_ranks() {
  Scene s = scene_on(paths().front(), Layout::padded);
  s.config.way = Way::automatic;
  s.config.timeout = 10;
  s.config.symmetric_bytes = 1 << 20;
  return s;
}

TEST(Mismatch, OfConfigurationsIsNamedAtTheStart) {
  using Change = std::function<void(Config&)>;
  std::vector<std::tuple<Change, std::string, std::string>> changes{
      {[](Config& c) { c.experts = 15; }, "experts=16", "experts=15"},
      {[](Config& c) { c.topk = 5; }, "topk=4", "topk=5"},
      {[](Config& c) { c.hidden = 34; }, "hidden=33", "hidden=34"},
      {[](Config& c) { c.max_tokens = 7; }, "max_tokens=6", "max_tokens=7"},
      {[](Config& c) { c.tp_size = 2; }, "tp_size=1", "tp_size=2"},
      {[](Config& c) { c.in_flight = 3; }, "in_flight=2", "in_flight=3"},
      {[](Config& c) { c.dtype = DType::fp16; }, "dtype=bf16", "dtype=fp16"},
      {[](Config& c) { c.combine_dtype = DType::fp32; }, "combine_dtype=bf16", "combine_dtype=fp32"},
      {[](Config& c) { c.out_dtype = DType::fp32; }, "out_dtype=bf16", "out_dtype=fp32"},
      {[](Config& c) { c.scale_columns = 1; }, "scale_columns=0", "scale_columns=1"},
      {[](Config& c) { c.scale_bytes = 8; }, "scale_bytes=4", "scale_bytes=8"},
      {[](Config& c) { c.layout = Layout::contiguous; }, "layout=padded", "layout=contiguous"},
      {[](Config& c) { c.way = Way::put; }, "way=auto", "way=put"},
      {[](Config& c) { c.partial_sums = true; }, "partial_sums=0", "partial_sums=1"},
      {[](Config& c) { c.symmetric_bytes += 1; }, "symmetric_bytes=1048576", "symmetric_bytes=1048577"},
  };
  if (!on_gpu()) {  // which refuse it
    changes.emplace_back([](Config& c) { c.force_puts = true; }, "force_puts=0", "force_puts=1");
  }
  for (const auto& [change, ours, theirs] : changes) {
    const auto part = [&, &change = change](World world) {
      Config config = four_ranks().config;
      if (world.rank() == 2) change(config);
      Engine engine(std::move(world), config);
    };
    expect_mismatch(4,
                    {"rank 0 has " + ours + " and rank 2 has " + theirs, "one configuration for all ranks"},
                    part, theirs);
    expect_mismatch(4, {"rank 2 has " + theirs + " and rank 0 has " + ours}, part, theirs);
  }
  // The bound is each rank's own affair.
  const auto bounds = [](World world) {
    Config config = four_ranks().config;
    config.timeout = world.rank() + 1;
    Engine engine(std::move(world), config);
  };
  EXPECT_EQ(complaints(play(Home::threads, 4, 10, bounds)), "");
}

TEST(Mismatch, OfAlignment) {
  expect_mismatch(
      2, {"rank 0 has alignment=8 and rank 1 has alignment=16"},
      [](World world) {
        Config config = four_ranks().config;
        config.layout = Layout::contiguous;
        config.alignment = 8 * (world.rank() + 1);
        Engine engine(std::move(world), config);
      },
      "alignment");
}

TEST(Mismatch, OfTablesAtTheStart) {
  expect_mismatch(
      4, {"rank 0 has placement=", " and rank 3 has placement="},
      [](World world) {
        std::vector<std::int32_t> table(16, world.rank() == 3 ? 1 : 2);
        Engine engine(std::move(world), four_ranks().config, Placement::table(table, 4));
      },
      "tables");
}

class MismatchOnPath : public OnPath {};
MOELANE_ON_EVERY_PATH(MismatchOnPath);

// Three good steps first, so that there are old words to be mistaken for new ones.
void good_steps(Player& player) {
  for (int step = 0; step < 3; ++step) player.play(step);
}

void dispatch(const Scene& s, Player& player, int step) {
  player.begin(step);
  if (s.calls_of(step, true) == Calls::whole) {
    player.dispatch();
  } else {
    player.dispatch_send();
    player.dispatch_recv();
  }
}

TEST_P(MismatchOnPath, OfTablesBetweenSteps) {
  Scene s = scene();
  s.config.timeout = 10;
  s.reserve();
  for (const int odd : {0, 2}) {
    const auto part = [&](World world) {
      Engine engine(world, s.config);
      Player player(engine, s, 1);
      good_steps(player);
      if (world.rank() == odd) engine.set_placement(Placement::table(std::vector<std::int32_t>(16, 1), 4));
      dispatch(s, player, 3);
    };
    expect_mismatch(4, {" in dispatch", "work with different placements", "step 4, lane 1", "set_placement"},
                    part, "tables");
  }
}

TEST_P(MismatchOnPath, OfTokensWithinAGroup) {
  Scene s = scene(), other = scene();
  s.config.timeout = other.config.timeout = 10;
  s.config.tp_size = other.config.tp_size = 2;
  s.tokens = [](int, int) { return 3; };
  other.tokens = [](int step, int group) { return step == 3 && group == 1 ? 5 : 3; };
  s.reserve();
  other.reserve();
  const auto part = [&](World world) {
    const bool odd = world.rank() == 3;
    Engine engine(world, s.config);
    Player player(engine, odd ? other : s, 0);
    good_steps(player);
    dispatch(s, player, 3);
  };
  expect_mismatch(4,
                  {"rank 0 in dispatch", "heard from rank 3 of 5 tokens", "step 4, lane 0",
                   "allowed are 0 to 6", "all 2 ranks of a DP group, whose first brings 3"},
                  part, "tokens");
}

// Whole calls that go directly on one side, split ones on the other.
TEST(Mismatch, OfKindsOfCalls) {
  for (const int whole : {0, 1, 3}) {
    for (const int steps : {0, 3}) {
      Scene s = four_ranks();
      s.reserve();
      const auto part = [&](World world) {
        Engine engine(world, s.config);
        Player player(engine, s, 0);
        for (int step = 0; step < steps; ++step) player.play(step);
        player.begin(steps);
        if (world.rank() == whole) {
          player.dispatch();
        } else {
          player.dispatch_send();
          player.dispatch_recv();
        }
      };
      const std::string it = "rank " + std::to_string(whole),
                        lane = "step " + std::to_string(steps + 1) + ", lane 0";
      expect_mismatch(
          4, {it + " in dispatch and rank ", "different ways", lane, "says put", "whole or split"}, part, it);
      expect_mismatch(4, {"in dispatch_recv and " + it + " take different ways", "says direct"}, part, it);
    }
  }
}

// Rank 1 uses a tensor elsewhere, with less room, or with expert rows elsewhere.
TEST(Mismatch, OfSymmetricTensors) {
  enum class Odd { offset, capacity, expert_rows };
  for (const Layout layout : {Layout::padded, Layout::contiguous, Layout::ranked}) {
    for (const Odd what : {Odd::offset, Odd::capacity, Odd::expert_rows}) {
      Scene s = four_ranks();
      s.config.layout = layout;
      s.reserve();
      s.config.symmetric_bytes += 4096;
      const auto part = [&](World world) {
        const bool odd = world.rank() == 1;
        Engine engine(world, s.config);
        if (odd && what == Odd::offset) engine.allocate(0, DType::uint8, {1});
        Player player(engine, s, 0);
        player.begin(0);
        DispatchOutput out = player.output();
        const std::size_t row = layout == Layout::padded ? 1 : 0;
        for (TensorView* t : {&out.x, &out.topk_ids, &out.topk_weights}) {
          if (odd && what == Odd::capacity) --t->shape[t == &out.x ? row : 0];
        }
        engine.dispatch(0, player.input(), out, player.stream());
        player.finish();
        const Guarded combined(Spec::dense(DType::bf16, {6, 33}), player.site());
        TensorView rows = player.rows();
        if (odd) rows.data = static_cast<std::byte*>(rows.data) + 2;
        engine.combine(0, rows, combined.view(), false, player.stream());
        player.finish();
      };
      const bool in_combine = what == Odd::expert_rows;
      expect_mismatch(4,
                      {in_combine ? " in combine and rank " : " in dispatch and rank ",
                       "symmetric tensors that differ in offset, strides or capacity", "step 1, lane 0",
                       "same shapes in the same order"},
                      part, std::string(name_of(layout)) + std::to_string(static_cast<int>(what)));
    }
  }
}

}  // namespace
}  // namespace moelane::test
