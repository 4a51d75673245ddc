#include "routing/routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "cli/text.hpp"
#include "moelane/error.hpp"
#include "routing/drawn_routing.hpp"
#include "routing/esft_trace.hpp"
#include "routing/expert_counts.hpp"
#include "routing/input_file.hpp"
#include "routing/recorded_routing.hpp"
#include "routing/safetensors_routing.hpp"

namespace moelane::tools {
namespace {

// Far above any model; they bound what tables and one token's draw can cost.
constexpr int max_experts = 1 << 20;
constexpr int max_topk = 1024;

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorKind::argument, sentence); }

double parse_exponent(std::string_view text) {
  double exponent = 0;
  const char* end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, exponent);
  if (result.ec != std::errc{} || result.ptr != end || !std::isfinite(exponent) || exponent < 0) {
    refuse(fmt::format("routing exponent S of zipf:S is {}, must be a finite number >= 0", quote(text)));
  }
  return exponent;
}

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::path(path), error);
}

// A name may have a '#' in it: what exists as a whole is taken as a whole.
std::pair<std::string, std::string> split_selector(const std::string& spec) {
  const std::size_t mark = spec.rfind('#');
  if (mark == std::string::npos || exists(spec)) return {spec, ""};
  return {spec.substr(0, mark), spec.substr(mark + 1)};
}

std::unique_ptr<RoutingSource> open_file(const std::string& spec, int experts, int topk, std::uint64_t seed) {
  const auto [path, selector] = split_selector(spec);
  if (!exists(path)) {
    refuse(
        fmt::format("routing {} is neither uniform, nor zipf:S, nor a file that exists", quote(spec, 200)));
  }
  const InputFile file("routing file", path);
  std::array<char, 64> buffer{};
  const std::size_t size = std::min<std::size_t>(buffer.size(), static_cast<std::size_t>(file.size()));
  file.read(0, buffer.data(), size);
  const std::string_view start(buffer.data(), size);
  const std::size_t text = start.find_first_not_of(" \t\r\n");
  const char first = text == std::string_view::npos ? '\0' : start[text];

  const bool safetensors = path.ends_with(".safetensors") || looks_like_safetensors(file);
  if (!safetensors && (first == '{' || first == '[')) {
    const std::string choice = selector.empty() ? "" : " at " + quote(selector, 100);
    return drawn_source(read_expert_counts(file, selector, experts), topk, seed,
                        fmt::format("drawn from the expert counts of {}{}", quote(path, 200), choice));
  }
  if (!selector.empty()) {
    file.refuse(fmt::format("has no sets of counts from which {} could be selected", quote('#' + selector)));
  }
  const auto recorded = [&](Routing routing, std::string_view format) {
    std::string description = fmt::format("{} tokens of {} ({})", routing.tokens, quote(path, 200), format);
    return recorded_source(std::move(routing), std::move(description));
  };
  if (safetensors) return recorded(read_safetensors_routing(file, experts, topk), "safetensors");
  if ((first >= '0' && first <= '9') || first == '-') {
    return recorded(read_esft_routing(file, experts, topk), "ESFT text trace");
  }
  file.refuse(fmt::format(
      "begins with {}, must be safetensors, an ESFT text trace or a JSON of expert counts", quote(start)));
}

}  // namespace

void RoutingSource::check_draw(int step, int group, int groups, int tokens) {
  if (step < 0) {
    throw Error(ErrorKind::argument, fmt::format("routing step is {}, must be 0 or more", step));
  }
  if (group < 0 || group >= groups) {
    throw Error(ErrorKind::argument,
                fmt::format("routing group is {}, must be from 0 to below the {} groups", group, groups));
  }
  if (tokens < 0) {
    throw Error(ErrorKind::argument, fmt::format("routing tokens is {}, must be 0 or more", tokens));
  }
}

std::unique_ptr<RoutingSource> open_routing(const std::string& spec, int experts, int topk,
                                            std::uint64_t seed) {
  if (experts < 1 || experts > max_experts) {
    refuse(fmt::format("experts is {}, must be from 1 to {}", experts, max_experts));
  }
  if (topk < 1 || topk > max_topk) refuse(fmt::format("topk is {}, must be from 1 to {}", topk, max_topk));
  try {
    if (spec == "uniform") return drawn_source(uniform_popularity(experts), topk, seed, "uniform");
    if (spec.starts_with("zipf:")) {
      const double exponent = parse_exponent(std::string_view(spec).substr(5));
      return drawn_source(zipf_popularity(experts, exponent, seed), topk, seed,
                          fmt::format("Zipf with exponent {}", exponent));
    }
    return open_file(spec, experts, topk, seed);
  } catch (const std::bad_alloc&) {
    refuse(fmt::format("routing {} does not fit in memory", quote(spec, 200)));
  }
}

}  // namespace moelane::tools
