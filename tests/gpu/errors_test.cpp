#include <gtest/gtest.h>

#include <climits>

#include "support/spoil.hpp"

// What kernels find wrong: the step goes on as the header says, the sentence comes with status() or the next
// call, and the lane works on.
namespace moelane::test {
namespace {

class Errors : public OnPath {};
MOELANE_ON_EVERY_PATH(Errors);

bool whole(const Scene& s, int step) { return s.calls_of(step, true) == Calls::whole; }

// The first call of a step, whose kernel reads the input, and the rest of the step.
void first_call(const Scene& s, Engine& engine, Player& player, int step) {
  whole(s, step) ? engine.dispatch(0, player.input(), player.output(), player.stream())
                 : engine.dispatch_send(0, player.input(), player.stream());
}
void rest_of_step(const Scene& s, Player& player, int step) {
  whole(s, step) ? player.check_dispatch() : player.dispatch_recv();
  s.calls_of(step, false) == Calls::whole ? player.combine() : (player.combine_send(), player.combine_recv());
}

TEST_P(Errors, BadIdsCountAsNone) {
  MOELANE_SKIP_ON_CPU("they refuse bad ids before anything is sent");
  for (const bool wide : {false, true}) {
    Scene s = spoiled_scene(scene());
    s.config.tp_size = wide ? 2 : 1;
    s.wide_ids = wide;
    s.habits.none = 0.3;
    s.reserve();
    std::vector<std::int64_t> wrong{-2, kExperts, INT_MIN, INT_MAX};
    if (wide)
      wrong.insert(wrong.end(), {INT64_MIN, INT64_MAX, std::int64_t{1} << 32, (std::int64_t{1} << 32) + 3});
    const auto part = [&](World world) {
      Engine engine(std::move(world), s.config);
      Player player(engine, s, 0);
      int step = 0, found = 0;
      for (const std::int64_t id : wrong) {
        player.begin(step);
        const std::int64_t first = player.spoil_ids(id);
        const auto call = [&] {
          first_call(s, engine, player, step);
          player.finish();
        };
        if (first < 0) {
          call();
        } else {
          const std::string place = std::to_string(first / kTopk) + ", " + std::to_string(first % kTopk);
          require(refusal(ErrorKind::argument, call) ==
                      "topk_ids[" + place + "] is " + std::to_string(id) + ", allowed are -1 to 15",
                  "another sentence for " + std::to_string(id) + " at " + place);
          ++found;
        }
        require(engine.healthy(), "the engine is healthy");
        player.finish();  // each is told once
        rest_of_step(s, player, step);
        player.play(++step);
        ++step;
      }
      require(found > 2, "the test itself is wrong: hardly any bad id");
    };
    EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part)), "") << (wide ? "int64" : "int32");
  }
}

TEST_P(Errors, NumbersOfTokensThatCannotBeCountAsNone) {
  MOELANE_SKIP_ON_CPU("they refuse such numbers before anything is sent");
  Scene s = spoiled_scene(scene());
  s.num_tokens = true;
  s.tokens = [](int step, int group) { return step % 2 == 0 && group == 1 ? 0 : kTokens; };
  s.reserve();
  const auto part = [&](World world) {
    const bool odd = world.rank() == 1;
    Engine engine(std::move(world), s.config);
    Player player(engine, s, 0);
    int step = 0;
    for (const std::int32_t wrong : {-1, kMost + 1, kMost + 2, INT_MIN, INT_MAX}) {
      player.begin(step);
      const auto call = [&] {
        first_call(s, engine, player, step);
        player.finish();
      };
      if (odd) {
        player.spoil_tokens(wrong);
        require(refusal(ErrorKind::argument, call) ==
                    "num_tokens is " + std::to_string(wrong) + ", allowed is 0 to 6",
                "another sentence for " + std::to_string(wrong));
      } else {
        call();
      }
      require(engine.healthy(), "the engine is healthy");
      rest_of_step(s, player, step);
      player.play(++step);
      ++step;
    }
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part)), "");
}

// An error that nobody has asked for comes out of the next call, which is not made and may be made again.
TEST_P(Errors, ComeWithTheNextCallWhichIsNotMade) {
  MOELANE_SKIP_ON_CPU("their calls say themselves what was wrong");
  Scene s = spoiled_scene(scene());
  s.habits.none = 0.5;
  s.reserve();
  const auto part = [&](World world) {
    Engine engine(std::move(world), s.config);
    Player player(engine, s, 0);
    player.begin(0);
    require(player.spoil_ids(kExperts) >= 0, "the test itself is wrong: no bad id");
    first_call(s, engine, player, 0);
    player.wait();
    const auto next = [&] {
      whole(s, 0) ? engine.combine(0, player.rows(), player.combined(), false, player.stream())
                  : engine.dispatch_recv(0, player.output(), player.stream());
    };
    if (whole(s, 0)) {
      player.check_dispatch();
      player.prepare_combine();
    }
    require_words(refusal(ErrorKind::argument, next), {"topk_ids[", "] is 16, allowed are -1 to 15"});
    rest_of_step(s, player, 0);
    player.play(1);
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part)), "");
}

TEST_P(Errors, TooLittleRoom) {
  for (const int rows : {0, 1, 7}) {
    Scene s = scene();
    s.capacity = [=](int) { return rows; };
    s.config.tp_size = rows == 1 ? 2 : 1;
    EXPECT_EQ(run(s, 6), "") << rows;
  }
}

TEST(ErrorsInWords, OfTooLittleRoom) {
  Scene s = scene_on({"", Way::put, Calls::split}, Layout::contiguous);
  s.ranks = 2;
  s.config.experts = 4;
  s.config.topk = 1;
  s.config.alignment = 8;
  s.habits = {0, 0, 1.0, 3, false};  // all to expert 3, on rank 1
  s.tokens = [](int, int) { return 5; };
  s.capacity = [](int) { return 4; };
  s.reserve();
  const auto part = [&](World world) {
    const int rank = world.rank();
    Engine engine(std::move(world), s.config);
    Player player(engine, s, 0);
    player.begin(0);
    player.dispatch_send();
    const auto receive = [&] {
      engine.dispatch_recv(0, player.output(), player.stream());
      player.finish();
    };
    if (rank == 0) return receive();
    const std::string sentence = refusal(ErrorKind::capacity, receive);
    require(sentence ==
                "rank 1 in dispatch_recv (step 1, lane 0) has capacity for 4 rows and needs 10 (every expert "
                "at a "
                "multiple of 8; expert 3 is the first to lack some): the step is invalid, rows past the "
                "capacity were "
                "dropped; give x more rows in dimension 0",
            sentence);
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part)), "");
}

}  // namespace
}  // namespace moelane::test
