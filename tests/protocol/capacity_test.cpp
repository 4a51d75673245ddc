#include <gtest/gtest.h>

#include "support/paths.hpp"
#include "support/player.hpp"

// Outputs that are too small. The player expects Error(capacity) exactly from the ranks that lack room and
// from those that lose rows, checks that nothing past the end is written, and that combine leaves out what
// was dropped, no more.
namespace moelane::test {
namespace {

class Capacity : public OnPath {};
MOELANE_ON_EVERY_PATH(Capacity);

// The put way needs no agreement about capacities.
std::function<int(int)> limits(const Scene& scene, int rows, bool uneven) {
  const bool direct = scene.config.way != Way::put && !scene.config.force_puts && !scene.config.partial_sums;
  return [=](int rank) { return uneven && !direct ? (rows * rank + 1) / 2 : rows; };
}

TEST_P(Capacity, RowsPastItAreDropped) {
  for (const auto& [tp, uneven] : {std::pair{1, false}, {1, true}, {2, true}}) {
    for (const int rows : {0, 1, 3, 5, 9, 16}) {
      Scene s = scene();
      s.config.tp_size = tp;
      s.config.experts = 7;
      s.config.scale_columns = 1;
      s.capacity = limits(s, rows, uneven);
      s.accumulate = rows == 3;
      s.strides = rows == 5 ? Strides::odd : Strides::dense;
      s.seed = static_cast<std::uint64_t>(rows + 1);
      EXPECT_EQ(run(s, 9), "") << rows << (uneven ? " and other" : "") << " rows, tp " << tp;
    }
  }
}

TEST_P(Capacity, WithAlignment) {
  if (std::get<Layout>(GetParam()) != Layout::contiguous) return;
  for (const int rows : {8, 15, 16, 17, 31, 40, 56}) {
    Scene s = scene();
    s.config.experts = 12;
    s.config.alignment = 16;
    s.capacity = limits(s, rows, true);
    EXPECT_EQ(run(s, 12), "") << rows;
  }
}

// A step that overflows leaves nothing behind for the next: now this rank is flooded, now that.
TEST_P(Capacity, NextStepIsFine) {
  Scene s = scene();
  s.config.experts = 4;
  s.config.in_flight = 1;
  s.habits = {0.1, 0, 0, 0, true};
  s.capacity = limits(s, std::get<Layout>(GetParam()) == Layout::padded ? 8 : 16, false);
  s.tokens = [](int step, int group) { return step % 3 == 0 ? 6 : (step + group) % 2; };
  EXPECT_EQ(run(s, 45), "");
  s.tables = {{0, 0, 0, 0}, {0, 1, 2, 3}, {3, 3, 3, 1}};
  EXPECT_EQ(run(s, 45), "");
}

// The sentences: who, in which call, what there is and what was needed; and who lost rows to whom.
TEST_P(Capacity, SaysWhatIsMissing) {
  Scene s = scene();
  s.ranks = 2;
  s.config.experts = 4;
  s.config.topk = 1;
  s.config.in_flight = 1;
  s.tables = {{0, 0, 1, 1}};
  s.habits = {0, 0, 1.0, 3, false};  // all to expert 3, on rank 1
  s.tokens = [](int, int group) { return group == 0 ? 4 : 3; };
  s.capacity = [](int) { return 4; };  // so group 0 keeps all and group 1 loses all
  s.reserve();
  const bool split = s.calls == Calls::split, padded = s.config.layout == Layout::padded;
  const std::vector<Ending> endings = play(Home::threads, 2, 20, [&](World world) {
    const int rank = world.rank();
    Engine engine(std::move(world), s.config, Placement::table(s.table(0), 2));
    Player player(engine, s, 0);
    player.begin(0);
    if (split) player.dispatch_send();
    const Stream stream = player.stream();
    const auto dispatch = [&] {
      split ? engine.dispatch_recv(0, player.output(), stream)
            : engine.dispatch(0, player.input(), player.output(), stream);
      player.finish();
    };
    if (rank == 1) {
      require_words(
          refusal(ErrorKind::capacity, dispatch),
          {"rank 1 in dispatch", "step 1, lane 0", "capacity for 4 rows", " 7", "the step is invalid",
           padded ? "expert 3" : "rows", padded ? "dimension 1" : "dimension 0"});
    } else {
      dispatch();
    }
    if (split) engine.combine_send(0, player.rows(), stream);
    const Guarded out(Spec::dense(s.config.out_dtype, {4, 33}), player.site());
    const auto combine = [&] {
      split ? engine.combine_recv(0, out.view(), false, stream)
            : engine.combine(0, player.rows(), out.view(), false, stream);
      player.finish();
    };
    if (rank == 1) {
      require_words(refusal(ErrorKind::capacity, combine),
                    {"rank 1 in combine", "step 1, lane 0", "lost rows at rank 1", "the step is invalid"});
    } else {
      combine();
    }
    require(engine.healthy(), "the engine is still healthy");
  });
  EXPECT_EQ(complaints(endings), "");
}

}  // namespace
}  // namespace moelane::test
