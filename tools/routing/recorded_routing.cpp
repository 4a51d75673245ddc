#include "routing/recorded_routing.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace moelane::tools {
namespace {

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

}  // namespace

std::unique_ptr<RoutingSource> recorded_source(Routing routing, std::string description) {
  return std::make_unique<RecordedRouting>(std::move(routing), std::move(description));
}

}  // namespace moelane::tools
