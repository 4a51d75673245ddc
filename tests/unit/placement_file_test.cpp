#include "routing/placement_file.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "moelane/error.hpp"

namespace moelane::tools {
namespace {

namespace fs = std::filesystem;

class PlacementFile : public testing::Test {
 protected:
  ~PlacementFile() override { fs::remove(file_); }

  std::string write(const std::string& text) const {
    std::ofstream(file_, std::ios::binary) << text;
    return file_.string();
  }

  static std::string refusal(const std::string& path, int experts = 3, int ranks = 2) {
    try {
      read_placement(path, experts, ranks);
      ADD_FAILURE() << path << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::argument);
      EXPECT_LT(std::string(error.what()).size(), 500U);
      return error.what();
    }
    return "";
  }

  void expect_refused(const std::string& text, const std::string& words) const {
    const std::string sentence = refusal(write(text));
    EXPECT_NE(sentence.find(words), std::string::npos) << sentence << "\nlacks: " << words;
  }

  fs::path file_ = fs::temp_directory_path() / ("moelane_placement_" + std::to_string(::getpid()));
};

TEST_F(PlacementFile, ReadsBothForms) {
  const std::vector<std::int32_t> expected{1, 0, 1};
  EXPECT_EQ(read_placement(write(R"({"rank_of": [1, 0, 1]})"), 3, 2), expected);
  EXPECT_EQ(read_placement(write(" [1,0,1]\n"), 3, 2), expected);
}

TEST_F(PlacementFile, RefusesWhatIsNotAllowed) {
  expect_refused("[1, 0]", "has 2 entries, must be one for each of the 3 experts");
  expect_refused("[1, 0, 2]", "the rank of expert 2 is 2, must be an integer from 0 to 1");
  expect_refused("[1, -1, 0]", "the rank of expert 1 is -1");
  expect_refused("[1, 0, 4294967296]", "the rank of expert 2 is 4294967296");
  expect_refused("[1, 0.5, 1]", "the rank of expert 1 is 0.5");
  expect_refused("[1, \"0\", 1]", "the rank of expert 1 is \"0\"");
  expect_refused("[1, [0], 1]", "the rank of expert 1 is an array");
  expect_refused("{}", "has no \"rank_of\"");
  expect_refused(R"({"ranks": [1, 0, 1]})", "has the key \"ranks\", must be \"rank_of\"");
  expect_refused(R"({"rank_of": [1, 0, 1], "rank_of": [0, 0, 0]})", "the key \"rank_of\" twice");
  expect_refused(R"({"rank_of": {"0": 1}})", "rank_of is an object, must be a list of ranks");
  expect_refused("7", "is 7, must be");
  expect_refused("[1, 0, 1", "is not JSON in UTF-8");
  expect_refused("[1, 0, 1]\xff", "is not JSON in UTF-8");
  expect_refused("\"" + std::string(1'000'000, 'x') + "\"", "xxx\"..., must be");
  expect_refused("\"" + std::string(1'000'000, 'x'), "is not JSON in UTF-8");
  expect_refused(std::string(1'000'000, '['), "nests deeper than 16 levels");
  expect_refused("", "is empty");
}

TEST_F(PlacementFile, RefusesWhatIsNotARegularFile) {
  EXPECT_NE(refusal("/nonexistent").find("cannot be opened"), std::string::npos);
  EXPECT_NE(refusal("/tmp").find("is a directory"), std::string::npos);
  EXPECT_NE(refusal("/dev/zero").find("is a device"), std::string::npos);
  EXPECT_NE(refusal(std::string("/tmp\0x", 6)).find("byte 0"), std::string::npos);
  EXPECT_NE(refusal("/tmp", 0, 1), "");
  EXPECT_NE(refusal("/tmp", 1, 0), "");
}

TEST_F(PlacementFile, SurvivesChangedBytes) {
  const std::string good = R"({"rank_of": [1, 0, 1]})";
  EXPECT_TRUE(rc::check("a good placement or a refusal", [&] {
    std::string text = good;
    for (int i = *rc::gen::inRange(1, 4); i > 0; --i) {
      text[*rc::gen::inRange<std::size_t>(0, text.size())] = *rc::gen::arbitrary<char>();
    }
    try {
      const std::vector<std::int32_t> rank_of = read_placement(write(text), 3, 2);
      RC_ASSERT(rank_of.size() == 3U);
      for (const std::int32_t rank : rank_of) RC_ASSERT(rank >= 0 && rank < 2);
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::argument);
    }
  }));
}

}  // namespace
}  // namespace moelane::tools
