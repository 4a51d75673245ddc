#include "routing/esft_trace.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <system_error>
#include <utility>

#include "cli/text.hpp"
#include "routing/recorded_values.hpp"

namespace moelane::tools {
namespace {

// The format does not say how many experts a token has: it is fixed.
constexpr int esft_topk = 6;
constexpr std::uint64_t max_text_bytes = std::uint64_t{1} << 30;

// Takes the text up to `separator` (or all of it) off the front of `rest`.
std::string_view take(std::string_view& rest, std::string_view separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view front = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + separator.size());
  return front;
}

// The whole of `field` as a number.
template <typename Number>
bool parse(std::string_view field, Number& number) {
  const char* end = field.data() + field.size();
  const std::from_chars_result result = std::from_chars(field.data(), end, number);
  return result.ec == std::errc{} && result.ptr == end;
}

class EsftReader {
 public:
  EsftReader(const InputFile& file, int experts) : file_(file), experts_(experts) {
    routing_.topk = esft_topk;
  }

  Routing read(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      std::string_view line = take(text, "\n");
      if (line.ends_with('\r')) line.remove_suffix(1);
      read_line(line);
    }
    const std::size_t tokens = routing_.ids.size() / esft_topk;
    if (tokens > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
      file_.refuse("has too many tokens");
    }
    routing_.tokens = static_cast<int>(tokens);
    return std::move(routing_);
  }

 private:
  void read_line(std::string_view line) {
    const std::size_t gap = line.find("\t\t");
    if (gap == std::string_view::npos) {
      file_.refuse(
          fmt::format("line {} is {}, must hold expert ids, a double tab and weights", line_, quote(line)));
    }
    std::string_view ids = line.substr(0, gap);
    std::string_view weights = line.substr(gap + 2);
    const std::size_t id_count = read_ids(ids);
    const std::size_t weight_count = read_weights(weights);
    if (id_count != weight_count) {
      file_.refuse(fmt::format("line {} has {} expert ids and {} weights, must be as many", line_, id_count,
                               weight_count));
    }
    if (id_count % esft_topk != 0) {
      file_.refuse(
          fmt::format("line {} has {} expert ids, must be a multiple of {}", line_, id_count, esft_topk));
    }
  }

  std::size_t read_ids(std::string_view rest) {
    std::size_t count = 0;
    for (bool more = true; more; ++count) {
      more = rest.find('\t') != std::string_view::npos;
      const std::string_view field = take(rest, "\t");
      std::int32_t id = 0;
      if (!parse(field, id)) {
        file_.refuse(fmt::format("{} is {}, must be an expert id from -1 to {}", where("expert id", count),
                                 quote(field), experts_ - 1));
      }
      if (!is_id(id, experts_)) refuse_id(file_, where("expert id", count), id, experts_);
      routing_.ids.push_back(id);
    }
    return count;
  }

  std::size_t read_weights(std::string_view rest) {
    std::size_t count = 0;
    for (bool more = true; more; ++count) {
      more = rest.find('\t') != std::string_view::npos;
      const std::string_view field = take(rest, "\t");
      float weight = 0;
      if (!parse(field, weight)) {
        file_.refuse(fmt::format("{} is {}, must be a number of float32's range", where("weight", count),
                                 quote(field)));
      }
      if (!std::isfinite(weight)) refuse_weight(file_, where("weight", count), weight);
      routing_.weights.push_back(weight);
    }
    return count;
  }

  std::string where(std::string_view what, std::size_t index) const {
    return fmt::format("line {}, {} of token {}, k {} of the line", line_, what, index / esft_topk,
                       index % esft_topk);
  }

  const InputFile& file_;
  int experts_;
  std::size_t line_ = 0;
  Routing routing_;
};

}  // namespace

Routing read_esft_routing(const InputFile& file, int experts, int topk) {
  if (topk != esft_topk) {
    file.refuse(
        fmt::format("is an ESFT text trace with {} experts a token, but topk is {}", esft_topk, topk));
  }
  return EsftReader(file, experts).read(file.text(max_text_bytes));
}

}  // namespace moelane::tools
