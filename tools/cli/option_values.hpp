#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "cli/options.hpp"

// Values of options, read strictly: what is not wholly understood is refused.
namespace moelane::tools {

// Throws Error(argument): which flag has which value, and what is allowed.
[[noreturn]] void refuse(const std::string& flag, const std::string& value, const std::string& allowed);

template <class N>
N whole_number(const std::string& flag, const std::string& text, N low, N high) {
  N value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    refuse(flag, text, fmt::format("a whole number from {} to {}", low, high));
  }
  return value;
}

// Above 0 and up to a million; "inf" too where `endless`.
double positive_number(const std::string& flag, const std::string& text, const std::string& of_what,
                       bool endless);

// N or A..B.
TokenRange token_range(const std::string& flag, const std::string& text);

// die:RANK@STEP or stall:RANK@STEP:SECONDS.
Injection injection_of(const std::string& text);

// Config::validate, but with the names of flags.
void check_config(const Config& config, int ranks);

}  // namespace moelane::tools
