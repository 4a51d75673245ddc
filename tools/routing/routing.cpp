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

#include "moelane/error.hpp"
#include "routing/routing_sources.hpp"

namespace moelane::tools {
namespace {

// Far above any model; they bound what tables and one token's draw can cost.
constexpr int max_experts = 1 << 20;
constexpr int max_topk = 1024;

class RecordedRouting final : public RoutingSource {
 public:
  RecordedRouting(Routing routing, std::string description)
      : routing_(std::move(routing)), description_(std::move(description)) {}

  Routing draw(int step, int group, int groups, int tokens) const override {
    check_draw(step, group, groups, tokens);
    const auto k = static_cast<std::size_t>(routing_.topk);
    const auto available = static_cast<std::uint64_t>(routing_.tokens);
    const std::uint64_t turn = static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(groups) +
                               static_cast<std::uint64_t>(group);
    // Both factors below 2^31: the product cannot overflow.
    std::uint64_t token = (turn % available) * (static_cast<std::uint64_t>(tokens) % available) % available;
    Routing result{tokens, routing_.topk, {}, {}};
    result.ids.reserve(static_cast<std::size_t>(tokens) * k);
    result.weights.reserve(static_cast<std::size_t>(tokens) * k);
    for (auto left = static_cast<std::uint64_t>(tokens); left > 0; token = 0) {
      const std::uint64_t run = std::min(left, available - token);
      append(result.ids, routing_.ids, token * k, run * k);
      append(result.weights, routing_.weights, token * k, run * k);
      left -= run;
    }
    return result;
  }

  std::string description() const override { return description_; }
  std::int64_t tokens_available() const override { return routing_.tokens; }

 private:
  template <typename Value>
  static void append(std::vector<Value>& to, const std::vector<Value>& from, std::size_t first,
                     std::size_t count) {
    const Value* begin = from.data() + first;
    to.insert(to.end(), begin, begin + count);
  }

  Routing routing_;
  std::string description_;
};

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
    return std::make_unique<RecordedRouting>(std::move(routing), std::move(description));
  };
  if (safetensors) return recorded(read_safetensors_routing(file, experts, topk), "safetensors");
  if ((first >= '0' && first <= '9') || first == '-') {
    return recorded(read_esft_routing(file, experts, topk), "ESFT text trace");
  }
  file.refuse(fmt::format(
      "begins with {}, must be safetensors, an ESFT text trace or a JSON of expert counts", quote(start)));
}

}  // namespace

void refuse_id(const InputFile& file, std::string_view where, std::int64_t id, int experts) {
  file.refuse(fmt::format("{} is {}, must be -1 or an expert number from 0 to {}", where, id, experts - 1));
}

void refuse_weight(const InputFile& file, std::string_view where, double weight) {
  file.refuse(fmt::format("{} is {}, must be finite in float32", where, weight));
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
