// Text traces and expert counts: real ones against independent counting, and malformed ones.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "moelane/error.hpp"
#include "routing/routing.hpp"
#include "support/traces.hpp"

namespace moelane::tools {
namespace {

namespace fs = std::filesystem;

class RoutingTrace : public testing::Test {
 protected:
  ~RoutingTrace() override { fs::remove(file_); }

  std::string write(const std::string& text) const {
    std::ofstream(file_, std::ios::binary) << text;
    return file_.string();
  }

  void expect_refused(const std::string& text, const std::string& words, int experts, int topk,
                      const std::string& selector = "") const {
    try {
      open_routing(write(text) + selector, experts, topk, 1);
      ADD_FAILURE() << words << ": was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::argument);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos)
          << error.what() << "\nlacks: " << words;
      EXPECT_LT(std::string(error.what()).size(), 700U);
    }
  }

  fs::path file_ = fs::temp_directory_path() / ("moelane_trace_" + std::to_string(::getpid()));
};

TEST_F(RoutingTrace, ReadsRealTextTraces) {
  const fs::path folder = test::traces();
  if (folder.empty()) GTEST_SKIP() << "no traces";
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "esft_deepseek_v2_lite")) {
    if (!entry.path().filename().string().starts_with("expert_weights_")) continue;
    ++files;
    // Word by word: whole numbers are ids, numbers with a point (or 0 and 1 after them) weights. The double
    // tab is found by splitting each line in the middle of its words.
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      std::istringstream stream(line);
      std::vector<std::string> words;
      for (std::string word; stream >> word;) words.push_back(word);
      for (std::size_t i = 0; i < words.size(); ++i) {
        if (i < words.size() / 2) {
          ids.push_back(std::atoi(words[i].c_str()));
        } else {
          weights.push_back(std::strtof(words[i].c_str(), nullptr));
        }
      }
    }
    const auto source = open_routing(entry.path().string(), 64, 6, 1);
    const auto tokens = static_cast<std::int64_t>(ids.size() / 6);
    ASSERT_EQ(source->tokens_available(), tokens) << entry.path();
    const Routing routing = source->draw(0, 0, 1, static_cast<int>(tokens));
    EXPECT_EQ(routing.ids, ids);
    EXPECT_EQ(routing.weights, weights);
    // Eight groups of one step read on, one after the other.
    const Routing fifth = source->draw(0, 5, 8, 1000);
    EXPECT_TRUE(std::equal(fifth.ids.begin(), fifth.ids.end(), ids.begin() + 5 * 1000 * 6));
  }
  EXPECT_GE(files, 8);
}

TEST_F(RoutingTrace, DrawsFromRealCounts) {
  const fs::path folder = test::traces();
  if (folder.empty()) GTEST_SKIP() << "no traces";
  const fs::path file = folder / "olmoe_mixtral/expert_counts.json";
  const nlohmann::json all = nlohmann::json::parse(std::ifstream(file));
  const auto check = [&](const char* model, const char* kind, const char* domain, const char* layer,
                         int experts) {
    const std::string selector = std::string("#") + model + "/" + kind + "/" + domain + "/" + layer;
    constexpr int tokens = 100'000;
    const Routing routing = open_routing(file.string() + selector, experts, 1, 5)->draw(0, 0, 1, tokens);
    const std::map<std::string, double> counts = all[model][kind][domain][layer];
    double sum = 0;
    for (const auto& [expert, count] : counts) sum += count;
    std::vector<double> drawn(static_cast<std::size_t>(experts), 0.0);
    for (const std::int32_t id : routing.ids) drawn[static_cast<std::size_t>(id)] += 1;
    for (int expert = 0; expert < experts; ++expert) {
      const auto found = counts.find(std::to_string(expert));
      const double expected = found == counts.end() ? 0 : tokens * found->second / sum;
      EXPECT_NEAR(drawn[static_cast<std::size_t>(expert)], expected, 5 * std::sqrt(expected + 1)) << selector;
    }
  };
  check("olmoe", "expert_counts", "c4", "0", 64);
  check("olmoe", "expert_counts_top1", "arxiv", "2", 64);  // three of its experts were never picked
  check("mistral", "expert_counts", "github", "1", 8);
  EXPECT_THROW(open_routing(file.string(), 64, 8, 1), Error);
  EXPECT_THROW(open_routing(file.string() + "#mistral/expert_counts/github/1", 64, 8, 1), Error);
}

TEST_F(RoutingTrace, ReadsSmallTextTraces) {
  const auto source = open_routing(
      write("0\t1\t2\t3\t4\t-1\t\t0.5\t1\t1e-3\t0\t-2\t0.25\r\n5\t4\t3\t2\t1\t0\t\t1\t1\t1\t1\t1\t1"), 6, 6,
      1);
  EXPECT_EQ(source->tokens_available(), 2);
  const Routing routing = source->draw(0, 0, 1, 2);
  EXPECT_EQ(routing.ids, (std::vector<std::int32_t>{0, 1, 2, 3, 4, -1, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(routing.weights, (std::vector<float>{0.5F, 1, 1e-3F, 0, -2, 0.25F, 1, 1, 1, 1, 1, 1}));
}

TEST_F(RoutingTrace, RefusesMalformedTextTraces) {
  const std::string ids = "0\t1\t2\t3\t4\t5";
  const std::string weights = "1\t1\t1\t1\t1\t1";
  const std::string good = ids + "\t\t" + weights;
  const auto refused = [&](const std::string& text, const std::string& words) {
    expect_refused(text, words, 6, 6);
  };
  expect_refused(good, "6 experts a token, but topk is 3", 6, 3);
  expect_refused(good, "line 1, expert id of token 0, k 5 of the line is 5, must be -1 or", 5, 6);
  refused(good + "\n\n", "line 2 is \"\", must hold expert ids");
  refused(good + "\n" + ids, "line 2 is \"0\\x091");
  refused("0\t1\t\t1\t1", "line 1 has 2 expert ids, must be a multiple of 6");
  refused(ids + "\t\t1\t1", "6 expert ids and 2 weights");
  refused(ids + "\t\t", "weight of token 0, k 0 of the line is \"\"");
  refused(good + "\t\t1", "weight of token 1, k 0 of the line is \"\"");
  refused("0\tx\t\t1\t1", "is \"x\", must be an expert id");
  refused("0\t99999999999\t\t1\t1", "is \"99999999999\", must be an expert id");
  refused("0\t1.5\t\t1\t1", "is \"1.5\"");
  refused("0 1 2 3 4 5\t\t" + weights, "is \"0 1 2 3 4 5\"");
  refused("-2" + good.substr(1), "k 0 of the line is -2");
  refused(ids + "\t\tnan\t1\t1\t1\t1\t1", "k 0 of the line is nan, must be finite");
  refused(ids + "\t\t1\tinf\t1\t1\t1\t1", "k 1 of the line is inf");
  refused(ids + "\t\t1\t1e99\t1\t1\t1\t1", "is \"1e99\", must be a number of float32's range");
  refused(std::string(1'000'000, '7'), "77777\"...");
  refused(good + "\n" + std::string(1000, '\0'), "line 2 is \"\\x00");
}

TEST_F(RoutingTrace, SurvivesChangedTextTraces) {
  const std::string good = "0\t1\t2\t3\t4\t5\t\t0.5\t1\t1\t1\t1\t1\n5\t4\t3\t2\t1\t0\t\t1\t1\t1\t1\t1\t1\n";
  EXPECT_TRUE(rc::check("a good routing or a refusal", [&] {
    std::string text = good.substr(0, *rc::gen::inRange<std::size_t>(1, good.size()));
    text[*rc::gen::inRange<std::size_t>(0, text.size())] =
        *rc::gen::element('\t', '\n', '-', '9', '\0', '.', '{');
    try {
      const Routing routing = open_routing(write(text), 6, 6, 1)->draw(0, 0, 1, 3);
      for (const std::int32_t id : routing.ids) RC_ASSERT(id >= -1 && id < 6);
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::argument);
    }
  }));
}

TEST_F(RoutingTrace, DrawsFromSmallCounts) {
  for (const char* text : {"[0, 5, 0, 5]", R"({"1": 5, "3": 5})", R"( {"m": {"k": {"1": 5, "3": 5}}})"}) {
    const Routing routing = open_routing(write(text), 4, 3, 1)->draw(0, 0, 1, 4000);
    int zeros = 0;
    for (std::size_t i = 0; i < routing.ids.size(); i += 3) {
      EXPECT_EQ(routing.ids[i] + routing.ids[i + 1], 4);   // both that were ever picked come first,
      zeros += static_cast<int>(routing.ids[i + 2] == 0);  // then any of the others
      EXPECT_TRUE(routing.ids[i + 2] == 0 || routing.ids[i + 2] == 2);
    }
    EXPECT_NEAR(zeros, 2000, 200);
  }
  // An expert that one set lacks is known from the model's other sets.
  const std::string two = write(R"({"m": {"a": {"0": 1}, "b": {"1": 1}}, "n": [1, 2, 3]})");
  EXPECT_EQ(open_routing(two + "#m/a", 2, 1, 1)->draw(0, 0, 1, 1).ids, std::vector<std::int32_t>{0});
  EXPECT_EQ(open_routing(two + "#n", 3, 1, 1)->tokens_available(), -1);
}

TEST_F(RoutingTrace, RefusesMalformedCounts) {
  const auto refused = [&](const std::string& text, const std::string& words,
                           const std::string& selector = "") { expect_refused(text, words, 2, 1, selector); };
  const std::string two = R"({"a": {"x": [1, 2]}, "b": {"y": [3, 4]}})";
  refused(two, R"(several sets of counts ("a", "b"), choose one after the file's name, such as "#a/x")");
  refused(two, R"(has no "c" as its selector wants, only "a", "b")", "#c");
  refused(two, R"(has no "y" as its selector wants, only "x")", "#a/y");
  refused(two, R"(nothing below its counts, but the selector goes on with "0")", "#a/x/0");
  refused("[1, 2, 3]", "has counts of 3 experts, but there are 2");
  refused(R"({"0": 1})", "has counts of 1 experts, but there are 2");
  refused("[0, 0]", "has no count above 0");
  refused("[1, -2]", "the count -2 for expert 1");
  refused("[1, 2.5]", "the count 2.5 for expert 1");
  refused("[1, [2]]", "the count an array for expert 1");
  refused("[4611686018427387904, 1]", "the count 1 for expert 1");
  refused(R"({"0": 1, "01": 2})", "the key \"01\"");
  refused(R"({"0": 1, "1": null})", "the count null for expert 1");
  refused(R"({"0": 1, "4294967296": 2})", "the key \"4294967296\"");
  refused(R"({"0": 1, "0": 2})", "the key \"0\" twice");
  refused(R"({"a": "x"})", R"(the entry "a" is "x", must be counts)");
  refused("{}", "the top level is empty");
  refused("{\"a\": {}}", "the entry \"a\" is empty");
  refused("[1, 2", "is not JSON in UTF-8");
  refused("[1, 2] x", "is not JSON in UTF-8");
  refused(std::string("[1, 2]\0[", 8), "has a byte 0");
  refused("[1, 1e999]", "a number that is too large");
  refused("{\"\xc3\": 1}", "is not JSON in UTF-8");
  refused(std::string(5'000'000, '['), "nests deeper than 16 levels");
  std::string many = "[0";
  for (int i = 0; i < 2'000'001; ++i) many += ",0";
  refused(many + "]", "has more than 2000000 values");
  refused("{\"" + std::string(1'000'000, 'k') + "\": [1], \"a\": [2]}", "several sets");
}

}  // namespace
}  // namespace moelane::tools
