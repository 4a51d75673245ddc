#include <gtest/gtest.h>

#include "support/paths.hpp"
#include "support/player.hpp"

// Who chooses whom: groups without tokens, tokens without experts, ranks without experts, expert tables that
// change.
namespace moelane::test {
namespace {

class Choices : public OnPath {};
MOELANE_ON_EVERY_PATH(Choices);

TEST_P(Choices, NumbersOfTokens) {
  const std::vector<std::pair<const char*, std::function<int(int, int)>>> patterns{
      {"none at all", [](int, int) { return 0; }},
      {"none on group 0", [](int, int group) { return group == 0 ? 0 : 5; }},
      {"only on the last group", [](int, int group) { return group == 3 ? 6 : 0; }},
      {"one each", [](int, int) { return 1; }},
      {"as many as may be", [](int, int) { return 6; }},
      {"one group at a time", [](int step, int group) { return step % 4 == group ? 3 : 0; }},
      {"in every other step", [](int step, int) { return step % 2 == 0 ? 4 : 0; }},
  };
  for (const auto& [name, tokens] : patterns) {
    for (const int ranks : {4, 8}) {
      Scene s = scene();
      s.ranks = ranks;
      s.config.tp_size = ranks / 4;
      s.tokens = tokens;
      EXPECT_EQ(run(s, 12), "") << name << " of " << ranks << " ranks";
    }
  }
}

TEST_P(Choices, Habits) {
  const std::vector<std::pair<const char*, Habits>> all{
      {"no expert at all", {1.0, 1.0, 0, 0, false}},
      {"hardly any", {0.9, 0.5, 0, 0, true}},
      {"all to one expert", {0, 0, 1.0, 7, true}},
      {"skewed", {0.05, 0, 0.8, 15, true}},
      {"no -1", {0, 0, 0, 0, true}},
  };
  for (const auto& [name, habits] : all) {
    Scene s = scene();
    s.habits = habits;
    s.wide_ids = true;
    EXPECT_EQ(run(s, 12), "") << name;
    s.config.experts = 3;  // so every token names an expert several times
    s.habits.hot_expert %= 3;
    EXPECT_EQ(run(s, 12), "") << name << ", 3 experts";
  }
}

TEST_P(Choices, UnevenTables) {
  const std::vector<std::vector<std::int32_t>> tables{
      {0, 0, 0, 0, 0, 0, 0, 0},  // all on one rank
      {3, 3, 1, 3, 1, 1, 3, 1},  // two ranks without any
      {2, 0, 3, 0, 0, 3, 3, 3},  // 3, 0, 1, 4; not in order
      {3, 2, 1, 0, 3, 2, 1, 0},  // strewn
  };
  for (const auto& table : tables) {
    for (const bool exact : {false, true}) {
      Scene s = scene();
      s.config.experts = 8;
      s.tables = {table};
      s.exact_experts = exact;
      s.config.tp_size = 2;
      EXPECT_EQ(run(s, 12), "");
    }
  }
  Scene s = scene();
  s.config.experts = 8;
  s.tables = tables;  // another one in every step
  s.config.in_flight = 3;
  EXPECT_EQ(run(s, 40), "");
}

TEST_P(Choices, FewExperts) {
  for (const int experts : {1, 2, 5}) {
    Scene s = scene();
    s.ranks = 6;
    s.config.experts = experts;
    s.config.tp_size = experts == 2 ? 2 : 1;
    s.exact_experts = true;
    EXPECT_EQ(run(s, 12), "") << experts;
  }
}

}  // namespace
}  // namespace moelane::test
