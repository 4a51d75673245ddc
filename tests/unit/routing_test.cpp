// Random values, drawn routing, and what a specification may be.
#include "routing/routing.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <vector>

#include "moelane/error.hpp"
#include "routing/random.hpp"

namespace moelane::tools {
namespace {

// The refusal that `action` ends with; empty if it does not.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument) << error.what();
    return error.what();
  }
  return "";
}

std::string refusal(const std::string& spec, int experts = 8, int topk = 2) {
  return refusal([&] { open_routing(spec, experts, topk, 1); });
}

// How often each expert is drawn for `groups` groups of `tokens` tokens.
std::vector<double> frequencies(const RoutingSource& source, int experts, int groups, int tokens) {
  std::vector<double> counts(static_cast<std::size_t>(experts), 0.0);
  for (int group = 0; group < groups; ++group) {
    for (const std::int32_t id : source.draw(0, group, groups, tokens).ids) {
      counts[static_cast<std::size_t>(id)] += 1;
    }
  }
  return counts;
}

// Expected values: the same formulas written in Python, which picks from a list of the experts that are left.
TEST(Random, IsTheSameOnEveryMachine) {
  Random random(7, 1, 2, 3);
  for (const std::uint64_t expected :
       {0x6e99da659bdaa781U, 0xb3a73f13d9ffd8b3U, 0x9405db302ffec5edU, 0xb84bec04dc8cab77U}) {
    EXPECT_EQ(random.next(), expected);
  }
  random = Random(7, 1, 2, 3);
  for (const std::uint64_t expected : {1U, 3U, 7U, 6U, 1U, 9U, 9U, 5U, 4U, 7U, 3U, 9U}) {
    EXPECT_EQ(random.below(10), expected);
  }
}

TEST(Random, StaysInRangeAndReachesAll) {
  Random random(1, 0, 0, stream::first_free);
  EXPECT_EQ(random.below(1), 0U);
  for (int i = 0; i < 100; ++i) EXPECT_LE(random.below((std::uint64_t{1} << 63) + 1), std::uint64_t{1} << 63);
  std::array<int, 10> seen{};
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    ++seen[random.below(10)];
    const float unit = random.unit();
    ASSERT_TRUE(unit >= 0.0F && unit < 1.0F);
    sum += static_cast<double>(unit);
  }
  for (const int count : seen) EXPECT_NEAR(count, 10'000, 600);
  EXPECT_NEAR(sum / 100'000, 0.5, 0.006);
}

TEST(Random, DifferentWordsGiveDifferentStreams) {
  std::set<std::uint64_t> first;
  for (std::uint64_t word = 0; word < 4; ++word) {
    for (std::uint64_t other = 0; other < 4; ++other) {
      first.insert(Random(word, other, 0, 0).next());
      first.insert(Random(0, word, other, 1).next());
      first.insert(Random(word, 0, 2, 2 + other).next());
    }
  }
  EXPECT_EQ(first.size(), 48U);
}

TEST(DrawnRouting, IsTheSameOnEveryMachine) {
  const Routing uniform = open_routing("uniform", 8, 3, 7)->draw(1, 2, 4, 6);
  EXPECT_EQ(uniform.tokens, 6);
  EXPECT_EQ(uniform.topk, 3);
  EXPECT_EQ(uniform.ids, (std::vector<std::int32_t>{0, 4, 7, 1, 3, 2, 5, 6, 0, 0, 4, 6, 0, 5, 4, 0, 2, 7}));
  const Routing zipf = open_routing("zipf:1", 4, 2, 7)->draw(1, 2, 4, 6);
  EXPECT_EQ(zipf.ids, (std::vector<std::int32_t>{3, 0, 3, 0, 3, 2, 2, 0, 3, 0, 0, 3}));
}

TEST(DrawnRouting, ChoosesDistinctExpertsWithPositiveWeights) {
  EXPECT_TRUE(rc::check("distinct while there are enough, then as often as possible", [] {
    const int experts = *rc::gen::inRange(1, 300);
    const int topk = *rc::gen::inRange(1, 33);
    const int tokens = *rc::gen::inRange(0, 40);
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    const std::string spec = *rc::gen::element<std::string>("uniform", "zipf:0", "zipf:0.7", "zipf:1.2",
                                                            "zipf:4", "zipf:50", "zipf:1e300");
    const Routing routing = open_routing(spec, experts, topk, seed)->draw(3, 1, 2, tokens);
    RC_ASSERT(routing.ids.size() == static_cast<std::size_t>(tokens * topk));
    RC_ASSERT(routing.weights.size() == routing.ids.size());
    for (int token = 0; token < tokens; ++token) {
      std::vector<int> times(static_cast<std::size_t>(experts), 0);
      float sum = 0;
      for (int k = 0; k < topk; ++k) {
        const auto index = static_cast<std::size_t>(token * topk + k);
        ++times.at(static_cast<std::size_t>(routing.ids[index]));
        RC_ASSERT(routing.weights[index] > 0.0F);
        sum += routing.weights[index];
      }
      RC_ASSERT(*std::max_element(times.begin(), times.end()) == (topk + experts - 1) / experts);
      RC_ASSERT(*std::min_element(times.begin(), times.end()) == topk / experts);
      RC_ASSERT(std::abs(sum - 1.0F) < 1e-5F);
    }
  }));
}

TEST(DrawnRouting, IsAFunctionOfItsArguments) {
  const auto source = open_routing("zipf:1", 64, 8, 5);
  const Routing routing = source->draw(2, 1, 4, 100);
  const Routing again = open_routing("zipf:1", 64, 8, 5)->draw(2, 1, 4, 100);
  EXPECT_EQ(routing.ids, again.ids);
  EXPECT_EQ(routing.weights, again.weights);
  EXPECT_NE(routing.ids, source->draw(1, 2, 4, 100).ids);
  EXPECT_NE(routing.ids, source->draw(3, 1, 4, 100).ids);
  EXPECT_NE(routing.weights, source->draw(3, 1, 4, 100).weights);
  EXPECT_NE(routing.ids, open_routing("zipf:1", 64, 8, 6)->draw(2, 1, 4, 100).ids);
  EXPECT_EQ(source->tokens_available(), -1);
  EXPECT_EQ(source->description(), "Zipf with exponent 1");
}

TEST(DrawnRouting, RefusesImpossibleDraws) {
  const auto source = open_routing("uniform", 8, 2, 1);
  EXPECT_NE(refusal([&] { source->draw(-1, 0, 1, 1); }), "");
  EXPECT_NE(refusal([&] { source->draw(0, 1, 1, 1); }), "");
  EXPECT_NE(refusal([&] { source->draw(0, -1, 1, 1); }), "");
  EXPECT_NE(refusal([&] { source->draw(0, 0, 1, -1); }), "");
}

TEST(UniformRouting, IsUniform) {
  const std::vector<double> counts = frequencies(*open_routing("uniform", 256, 8, 3), 256, 8, 4096);
  double chi_square = 0;
  for (const double count : counts) chi_square += (count - 1024) * (count - 1024) / 1024;
  // 255 degrees of freedom: mean 255, deviation 23. Too even would be as wrong as too uneven.
  EXPECT_LT(chi_square, 255 + 6 * 23);
  EXPECT_GT(chi_square, 255 - 6 * 23);
}

TEST(ZipfRouting, FallsWithTheRank) {
  std::vector<double> counts = frequencies(*open_routing("zipf:1.5", 16, 1, 3), 16, 4, 50'000);
  std::vector<double> other = frequencies(*open_routing("zipf:1.5", 16, 1, 4), 16, 4, 50'000);
  EXPECT_NE(std::max_element(counts.begin(), counts.end()) - counts.begin(),
            std::max_element(other.begin(), other.end()) - other.begin());
  std::sort(counts.begin(), counts.end(), std::greater<>());
  double sum = 0;
  for (int rank = 1; rank <= 16; ++rank) sum += std::pow(rank, -1.5);
  for (int rank = 1; rank <= 16; ++rank) {
    const double expected = 200'000 * std::pow(rank, -1.5) / sum;
    EXPECT_NEAR(counts[static_cast<std::size_t>(rank - 1)], expected, 5 * std::sqrt(expected))
        << "rank " << rank;
  }
}

// Without replacement, the pair (a, b) has probability p(a) p(b) / (1 - p(a)).
TEST(ZipfRouting, DrawsWithoutReplacementExactly) {
  const Routing routing = open_routing("zipf:1", 3, 2, 9)->draw(0, 0, 1, 110'000);
  std::array<std::array<int, 3>, 3> pairs{};
  std::array<int, 3> first{};
  for (std::size_t i = 0; i < routing.ids.size(); i += 2) {
    const auto a = static_cast<std::size_t>(routing.ids[i]);
    const auto b = static_cast<std::size_t>(routing.ids[i + 1]);
    ++first[a];
    ++pairs[a][b];
  }
  std::array<std::size_t, 3> rank{0, 1, 2};
  std::sort(rank.begin(), rank.end(), [&](std::size_t a, std::size_t b) { return first[a] > first[b]; });
  const std::array<double, 3> p{6.0 / 11, 3.0 / 11, 2.0 / 11};
  for (std::size_t a = 0; a < 3; ++a) {
    for (std::size_t b = 0; b < 3; ++b) {
      const double expected = a == b ? 0 : 110'000 * p[a] * p[b] / (1 - p[a]);
      EXPECT_NEAR(pairs[rank[a]][rank[b]], expected, 5 * std::sqrt(expected)) << a << ", " << b;
    }
  }
}

TEST(ZipfRouting, SteepExponentsTakeTheMostPopular) {
  for (const char* spec : {"zipf:60", "zipf:1e10", "zipf:1e308"}) {
    const Routing routing = open_routing(spec, 256, 4, 11)->draw(0, 0, 1, 500);
    for (std::size_t i = 4; i < routing.ids.size(); ++i) {
      ASSERT_EQ(routing.ids[i], routing.ids[i - 4]) << spec;
    }
  }
}

TEST(RoutingSpec, RefusesWhatIsNotAllowed) {
  for (const char* spec :
       {"zipf:", "zipf:x", "zipf:-1", "zipf:nan", "zipf:inf", "zipf:1e999", "zipf:1 ", "zipf:1,2"}) {
    EXPECT_NE(refusal(spec).find("must be a finite number >= 0"), std::string::npos) << spec;
  }
  EXPECT_EQ(refusal("unifrom"), "routing \"unifrom\" is neither uniform, nor zipf:S, nor a file that exists");
  EXPECT_NE(refusal(""), "");
  EXPECT_NE(refusal("#"), "");
  EXPECT_NE(refusal("uniform", 0, 2).find("experts is 0"), std::string::npos);
  EXPECT_NE(refusal("uniform", 2'000'000'000, 2).find("experts is 2000000000"), std::string::npos);
  EXPECT_NE(refusal("uniform", 8, 0).find("topk is 0"), std::string::npos);
  EXPECT_LT(refusal("zipf:" + std::string(1'000'000, '9') + "x").size(), 300U);
  EXPECT_LT(refusal(std::string(1'000'000, 'a')).size(), 400U);
}

}  // namespace
}  // namespace moelane::tools
