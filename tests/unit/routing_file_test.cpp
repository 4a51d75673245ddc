// Routing that is read from files: good ones, real ones, and hostile ones.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "moelane/error.hpp"
#include "routing/routing.hpp"
#include "routing/safetensors_routing.hpp"

namespace moelane::tools {
namespace {

namespace fs = std::filesystem;

class RoutingFile : public testing::Test {
 protected:
  RoutingFile() { fs::create_directories(folder_); }
  ~RoutingFile() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  // The sentence with which the file is refused; a failure if it is not, or if the sentence floods.
  static std::string refusal(const std::string& spec, int experts = 4, int topk = 2) {
    try {
      open_routing(spec, experts, topk, 1);
      ADD_FAILURE() << spec << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::argument);
      EXPECT_LT(std::strlen(error.what()), 700U);
      for (const char* c = error.what(); *c != '\0'; ++c) EXPECT_TRUE(*c >= ' ' && *c <= '~') << error.what();
      return error.what();
    }
    return "";
  }

  void expect_refused(const std::string& name, const std::string& bytes, const std::string& words,
                      int experts = 4, int topk = 2) const {
    const std::string sentence = refusal(write(name, bytes), experts, topk);
    EXPECT_NE(sentence.find(words), std::string::npos) << sentence << "\nlacks: " << words;
    EXPECT_NE(sentence.find(name), std::string::npos) << sentence;
  }

  fs::path folder_ = fs::temp_directory_path() / ("moelane_routing_" + std::to_string(::getpid()));
};

std::string little(std::uint64_t value, int bytes = 8) {
  return {reinterpret_cast<const char*>(&value), static_cast<std::size_t>(bytes)};
}

template <typename Value>
std::string bytes_of(std::initializer_list<Value> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(Value)};
}

std::string slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string safetensors(const std::string& header, const std::string& data) {
  return little(header.size()) + header + data;
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string header(const std::string& ids, const std::string& weights) {
  return R"({"topk_ids":)" + ids + R"(,"topk_weights":)" + weights + "}";
}

const Routing small{3, 2, {0, 3, -1, 2, 1, 1}, {0.5F, 0.25F, 0.0F, -1.5F, 1e-30F, 1.0F}};
const std::string small_ids = tensor("I32", "[1,2]", "[0,8]");
const std::string small_weights = tensor("F32", "[1,2]", "[8,16]");

TEST_F(RoutingFile, ReadsWhatItWrites) {
  write_safetensors_routing(path("a"), small);  // known by its content, not by its name
  const auto source = open_routing(path("a"), 4, 2, 1);
  EXPECT_EQ(source->tokens_available(), 3);
  EXPECT_NE(source->description().find("3 tokens"), std::string::npos);
  const Routing read = source->draw(0, 0, 1, 3);
  EXPECT_EQ(read.tokens, 3);
  EXPECT_EQ(read.topk, 2);
  EXPECT_EQ(read.ids, small.ids);
  EXPECT_EQ(read.weights, small.weights);
  EXPECT_THROW(write_safetensors_routing("/nonexistent/a", small), Error);
  EXPECT_THROW(write_safetensors_routing(path("b"), Routing{2, 2, {1}, {1.0F}}), Error);
}

TEST_F(RoutingFile, GivesConsecutiveTokensAndWraps) {
  EXPECT_TRUE(rc::check("token (step * groups + group) * tokens + i modulo N", [this] {
    const int available = *rc::gen::inRange(1, 20);
    Routing routing{available, 1, {}, {}};
    for (int token = 0; token < available; ++token) {
      routing.ids.push_back(token);
      routing.weights.push_back(static_cast<float>(token) / 2);
    }
    write_safetensors_routing(path("wrap"), routing);
    const auto source = open_routing(path("wrap"), 20, 1, 1);
    const int step = *rc::gen::element(0, 1, 5, 2'000'000'000);
    const int groups = *rc::gen::element(1, 3, 2'000'000'000);
    const int group = *rc::gen::inRange(0, std::min(groups, 1000));
    const int tokens = *rc::gen::inRange(0, 60);
    const Routing drawn = source->draw(step, group, groups, tokens);
    RC_ASSERT(drawn.tokens == tokens && drawn.ids.size() == static_cast<std::size_t>(tokens));
    const auto turn = static_cast<std::int64_t>(step) * groups + group;
    for (int i = 0; i < tokens; ++i) {
      const std::int64_t expected = (turn % available * tokens + i) % available;
      RC_ASSERT(drawn.ids[static_cast<std::size_t>(i)] == expected);
      RC_ASSERT(drawn.weights[static_cast<std::size_t>(i)] == static_cast<float>(expected) / 2);
    }
  }));
}

TEST_F(RoutingFile, ReadsTheTraceOfThisRepository) {
  const auto source = open_routing(MOELANE_SOURCE_DIR "/tests/data/trace.safetensors", 64, 8, 1);
  ASSERT_EQ(source->tokens_available(), 256);
  const Routing routing = source->draw(0, 0, 1, 256);
  for (int t = 0; t < 256; ++t) {
    for (int k = 0; k < 8; ++k) {  // the formulas of scripts/make-trace
      const auto index = static_cast<std::size_t>(t * 8 + k);
      ASSERT_EQ(routing.ids[index], (t + k) % 29 == 0 ? -1 : (t * t + 9 * k) % 64);
      ASSERT_EQ(routing.weights[index], static_cast<float>(1 + (t + 3 * k) % 16) / 64.0F);
    }
  }
}

TEST_F(RoutingFile, ReadsEveryElementType) {
  const std::string half = bytes_of<std::uint16_t>({0x3c00, 0xc000, 0x0001, 0x03ff, 0x0400, 0x7bff});
  const std::string brain = bytes_of<std::uint16_t>({0x3f80, 0xc000, 0x0001, 0x4049, 0x7f7f, 0x8000});
  const std::string wide = bytes_of<double>({1.0, -2.0, 0.1, 1e-300, 3e38, -0.0});
  const std::string ids = bytes_of<std::int64_t>({0, 3, -1, 2, 1, 1});
  const auto read = [&](const char* dtype, const std::string& data) {
    const std::string end = std::to_string(48 + data.size());
    write("t",
          safetensors(header(tensor("I64", "[3,2]", "[0,48]"), tensor(dtype, "[3,2]", "[48," + end + "]")),
                      ids + data));
    return open_routing(path("t"), 4, 2, 1)->draw(0, 0, 1, 3);
  };
  EXPECT_EQ(read("F16", half).ids, small.ids);
  EXPECT_EQ(read("F16", half).weights,
            (std::vector<float>{1.0F, -2.0F, 0x1p-24F, 0x3ffp-24F, 0x1p-14F, 65504.0F}));
  EXPECT_EQ(read("BF16", brain).weights,
            (std::vector<float>{1.0F, -2.0F, 0x1p-133F, 3.140625F, 0x1.fep127F, -0.0F}));
  EXPECT_EQ(read("F64", wide).weights, (std::vector<float>{1.0F, -2.0F, 0.1F, 0.0F, 3e38F, -0.0F}));
}

TEST_F(RoutingFile, RefusesEveryTruncation) {
  write_safetensors_routing(path("good"), small);
  const std::string good = slurp(path("good"));
  for (std::size_t length = 0; length < good.size(); ++length) {
    refusal(write("cut", good.substr(0, length)));
    refusal(write("cut.safetensors", good.substr(0, length)));
  }
  expect_refused("long.safetensors", good + "x", "1 bytes after its last tensor");
}

TEST_F(RoutingFile, SurvivesFlippedBytes) {
  write_safetensors_routing(path("good"), small);
  const std::string good = slurp(path("good"));
  EXPECT_TRUE(rc::check("a good routing or a refusal", [&] {
    std::string bytes = good;
    for (int i = *rc::gen::inRange(1, 4); i > 0; --i) {
      bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
    }
    write("flip.safetensors", bytes);
    try {
      const Routing routing = open_routing(path("flip.safetensors"), 4, 2, 1)->draw(0, 0, 1, 5);
      for (const std::int32_t id : routing.ids) RC_ASSERT(id >= -1 && id < 4);
      for (const float weight : routing.weights) RC_ASSERT(std::isfinite(weight));
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::argument);
      RC_ASSERT(std::strlen(error.what()) < 700U);
    }
  }));
}

TEST_F(RoutingFile, RefusesHostileSafetensors) {
  const std::string data = bytes_of<std::int32_t>({1, 2}) + bytes_of<float>({0.5F, 0.5F});
  const auto refused = [&](const std::string& text, const std::string& words) {
    expect_refused("t.safetensors", safetensors(text, data), words);
  };
  EXPECT_NO_THROW(
      open_routing(write("t", safetensors(header(small_ids, small_weights) + "  ", data)), 4, 2, 1));
  expect_refused("t.safetensors", little(~0ULL) + "{}", "is 18446744073709551615, at most 2 is allowed");
  expect_refused("t.safetensors", little(3) + "{}", "the header length at byte 0 is 3");
  refused("[]", "must begin with a brace");
  refused("{\"a\xff\":1}", "not JSON in UTF-8");
  refused("{}", "16 bytes after its last tensor");
  refused("{\"topk_ids\":1}", "tensor \"topk_ids\" is 1, must be an object");
  refused(header(small_ids, small_weights + ",\"topk_ids\":" + small_ids), "the key \"topk_ids\" twice");
  refused(header(small_ids, tensor("F32", "[1,2]", "[4,12]")), "\"topk_weights\" begins at byte 4");
  refused(header(tensor("I32", "[1,2]", "[0,8]"), tensor("F32", "[1,1]", "[12,16]")), "begins at byte 12");
  refused(header(small_ids, tensor("F32", "[1,2]", "[8,24]")), "[8, 24], must be begin <= end <= 16");
  refused(header(small_ids, tensor("F32", "[1,2]", "[16,8]")), "[16, 8], must be");
  refused(header(small_ids, tensor("F32", "[1,2]", "[8]")), "[8], must be");
  refused(header(small_ids, tensor("F32", "[1,2]", "[-8,16]")), "holds -8");
  refused(header(small_ids, tensor("F32", "[1,2]", "[8,99999999999999999999]")), "holds 1e+20");
  refused(header(small_ids, tensor("F32", "[4294967296,4294967296]", "[8,16]")), "more than 2^64 bytes");
  refused(header(small_ids, tensor("F32", "[9223372036854775809,2]", "[8,16]")), "more than 2^64 bytes");
  refused(header(small_ids, tensor("F32", "[2]", "[8,16]")), "is [2], must be [tokens >= 1, topk = 2]");
  refused(header(small_ids, tensor("F32", "[2,1]", "[8,16]")), "topk = 2");
  refused(header(small_ids, tensor("F16", "[2,2]", "[8,16]")), "1 tokens and topk_weights 2");
  refused(header(tensor("F32", "[1,2]", "[0,8]"), small_weights), "must be I32 or I64");
  refused(header(small_ids, tensor("I32", "[1,2]", "[8,16]")), "must be F32 or F16 or BF16 or F64");
  refused(header(small_ids, tensor(std::string(10'000, 'x'), "[1,2]", "[8,16]")), "xxx\"...");
  refused("{\"x\":" + tensor("U8", "[16]", "[0,16]") + "}", "no tensor \"topk_ids\" among its 1");
  refused("{\"topk_ids\":" + std::string(1'000'000, '[') + "}", "nests deeper than 16 levels");
  refused("{\"" + std::string(1'000'000, 'x'), "not JSON");

  const auto content = [&](const std::string& bytes, const std::string& words) {
    expect_refused("t.safetensors", safetensors(header(small_ids, small_weights), bytes), words);
  };
  const std::string weights = data.substr(8);
  content(bytes_of<std::int32_t>({1, 4}) + weights, "topk_ids of token 0, k 1 is 4, must be -1 or an expert");
  content(bytes_of<std::int32_t>({-2, 0}) + weights, "topk_ids of token 0, k 0 is -2");
  content(data.substr(0, 12) + bytes_of<float>({NAN}), "topk_weights of token 0, k 1 is nan");
  content(data.substr(0, 8) + bytes_of<float>({-INFINITY, 0}), "topk_weights of token 0, k 0 is -inf");
}

TEST_F(RoutingFile, RefusesWhatIsNotARegularFile) {
  EXPECT_NE(refusal(path("")).find("is a directory"), std::string::npos);
  EXPECT_NE(refusal("/dev/zero").find("is a device"), std::string::npos);
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_NE(refusal(path("fifo")).find("is a FIFO"), std::string::npos);
  expect_refused("empty", "", "is empty");
  expect_refused("prose", "Once upon a time", "begins with \"Once upon a time\", must be safetensors");
  expect_refused("binary", std::string(1000, '\0') + "\x1b[2J", "begins with \"\\x00");
  EXPECT_NE(refusal(write("x", "Once") + "#a").find("no sets of counts"), std::string::npos);
  write("huge", "8");
  fs::resize_file(path("huge"), (std::uintmax_t{4} << 30) + 1);
  EXPECT_NE(refusal(path("huge")).find("at most 4294967296 are allowed"), std::string::npos);
}

}  // namespace
}  // namespace moelane::tools
