#include "cli/option_values.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "cli/text.hpp"
#include "moelane/error.hpp"

namespace moelane::tools {

void refuse(const std::string& flag, const std::string& value, const std::string& allowed) {
  throw Error(ErrorKind::argument, fmt::format("{} is {}, allowed is {}", flag, quote(value), allowed));
}

double positive_number(const std::string& flag, const std::string& text, const std::string& of_what,
                       bool endless) {
  if (endless && text == "inf") return std::numeric_limits<double>::infinity();
  double value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || value > 1e6) {
    refuse(flag, text,
           fmt::format("a number of {} above 0 and up to 1000000{}", of_what, endless ? ", or inf" : ""));
  }
  return value;
}

TokenRange token_range(const std::string& flag, const std::string& text) {
  constexpr int kMost = (1 << 22) - 1;
  const std::size_t dots = text.find("..");
  TokenRange range;
  range.low = whole_number<int>(flag, text.substr(0, dots), 0, kMost);
  range.high =
      dots == std::string::npos ? range.low : whole_number<int>(flag, text.substr(dots + 2), 0, kMost);
  if (range.low > range.high) refuse(flag, text, "a number, or A..B with A no larger than B");
  return range;
}

Injection injection_of(const std::string& text) {
  const std::string allowed = "die:RANK@STEP or stall:RANK@STEP:SECONDS (steps from 1)";
  Injection injection;
  std::string rest;
  if (text.starts_with("die:")) {
    injection.die = true;
    rest = text.substr(4);
  } else if (text.starts_with("stall:")) {
    rest = text.substr(6);
  } else {
    refuse("--inject", text, allowed);
  }
  const std::size_t at = rest.find('@'), colon = rest.find(':');
  if (at == std::string::npos || (colon == std::string::npos) != injection.die || colon < at) {
    refuse("--inject", text, allowed);
  }
  injection.rank = whole_number<int>("RANK of --inject", rest.substr(0, at), 0, 1023);
  injection.step = whole_number<int>("STEP of --inject", rest.substr(at + 1, colon - (at + 1)), 1, 1 << 30);
  if (!injection.die)
    injection.seconds = positive_number("SECONDS of --inject", rest.substr(colon + 1), "seconds", false);
  return injection;
}

void check_config(const Config& config, int ranks) {
  static const std::map<std::string, std::string> flags = {
      {"tp_size", "--tp"},
      {"alignment", "--alignment"},
      {"partial_sums", "--partial-sums"},
      {"way", "--way"},
      {"symmetric_bytes", "bytes of a lane's tensors (--capacity rows of --hidden elements)"},
      {"max_tokens * topk", "--max-tokens * --topk"},
      {"rows of a step (groups * max_tokens * topk + experts * alignment)",
       "rows of a step (groups * --max-tokens * --topk + --experts * --alignment)"}};
  try {
    config.validate(ranks);
  } catch (const Error& error) {
    const std::string sentence = error.what();
    const std::size_t end = std::min(sentence.find(" is "), sentence.size());
    const auto flag = flags.find(sentence.substr(0, end));
    if (flag == flags.end()) throw;
    throw Error(error.kind(), flag->second + sentence.substr(end));
  }
}

}  // namespace moelane::tools
