#include "routing/drawn_routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

#include "routing/random.hpp"

namespace moelane::tools {
namespace {

constexpr std::uint64_t max_sum = std::uint64_t{1} << 62;

class DrawnRouting final : public RoutingSource {
 public:
  DrawnRouting(Popularity popularity, int topk, std::uint64_t seed, std::string description)
      : popularity_(std::move(popularity)), topk_(topk), seed_(seed), description_(std::move(description)) {
    begins_.reserve(popularity_.weights.size() + 1);
    begins_.push_back(0);
    for (const std::uint64_t weight : popularity_.weights) begins_.push_back(begins_.back() + weight);
  }

  Routing draw(int step, int group, int groups, int tokens) const override {
    check_draw(step, group, groups, tokens);
    const auto k = static_cast<std::size_t>(topk_);
    Routing result{tokens, topk_, {}, {}};
    result.ids.resize(static_cast<std::size_t>(tokens) * k);
    result.weights.resize(result.ids.size());
    Random ids(seed_, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(group),
               stream::routing_ids);
    Random weights(seed_, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(group),
                   stream::routing_weights);
    std::vector<std::size_t> chosen;
    for (std::size_t first = 0; first < result.ids.size(); first += k) {
      draw_ids(ids, chosen, std::span(result.ids).subspan(first, k));
      draw_weights(weights, std::span(result.weights).subspan(first, k));
    }
    return result;
  }

  std::string description() const override { return description_; }

 private:
  // Draws without replacement, exactly and in bounded time whatever the weights are: the chosen places are
  // cut out of the line of all weights; a point drawn on what is left is moved up past every cut before it.
  void draw_ids(Random& random, std::vector<std::size_t>& chosen, std::span<std::int32_t> out) const {
    const std::size_t count = popularity_.weights.size();
    chosen.clear();  // sorted
    std::uint64_t left = begins_.back();
    for (std::int32_t& id : out) {
      if (chosen.size() == count) {
        chosen.clear();
        left = begins_.back();
      }
      const std::size_t place = left > 0 ? weighted_place(random, chosen, left) : rest_place(random, chosen);
      chosen.insert(std::lower_bound(chosen.begin(), chosen.end(), place), place);
      left -= popularity_.weights[place];
      id = popularity_.experts[place];
    }
  }

  std::size_t weighted_place(Random& random, const std::vector<std::size_t>& chosen,
                             std::uint64_t left) const {
    std::uint64_t point = random.below(left);
    for (const std::size_t cut : chosen) {
      if (point < begins_[cut]) break;
      point += popularity_.weights[cut];
    }
    const auto end = std::upper_bound(begins_.begin(), begins_.end(), point);
    return static_cast<std::size_t>(end - begins_.begin()) - 1;
  }

  std::size_t rest_place(Random& random, const std::vector<std::size_t>& chosen) const {
    const bool in_order = popularity_.tail == Tail::in_order;
    std::size_t place = in_order ? 0 : random.below(popularity_.weights.size() - chosen.size());
    for (const std::size_t cut : chosen) {
      if (place < cut) break;
      ++place;
    }
    return place;
  }

  // Like a normalised gate: positive, sum about 1, with all mantissa bits in use.
  static void draw_weights(Random& random, std::span<float> out) {
    double sum = 0;
    for (float& weight : out) {
      weight = random.unit() + 0x1p-6F;
      sum += static_cast<double>(weight);
    }
    for (float& weight : out) weight = static_cast<float>(static_cast<double>(weight) / sum);
  }

  Popularity popularity_;
  std::vector<std::uint64_t> begins_;  // [places + 1], prefix sums of the weights
  int topk_;
  std::uint64_t seed_;
  std::string description_;
};

std::vector<std::int32_t> in_order(int experts) {
  std::vector<std::int32_t> result(static_cast<std::size_t>(experts));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

}  // namespace

Popularity uniform_popularity(int experts) {
  return {std::vector<std::uint64_t>(static_cast<std::size_t>(experts), 1), in_order(experts), Tail::uniform};
}

Popularity zipf_popularity(int experts, double exponent, std::uint64_t seed) {
  Popularity result{{}, in_order(experts), Tail::in_order};
  // Integers, so that a last bit in which one library's pow differs from another's is lost in rounding or
  // changes a probability by 2^-50: no draw in practice. A power of two, so that scaling itself is exact.
  const auto scale = static_cast<double>(std::bit_floor(max_sum / static_cast<std::uint64_t>(experts)));
  for (int rank = 1; rank <= experts; ++rank) {
    const double weight = std::pow(static_cast<double>(rank), -exponent);
    result.weights.push_back(static_cast<std::uint64_t>(scale * weight));
  }
  Random random(seed, 0, 0, stream::popularity);
  for (std::size_t count = result.experts.size(); count > 1; --count) {
    std::swap(result.experts[count - 1], result.experts[random.below(count)]);
  }
  return result;
}

std::unique_ptr<RoutingSource> drawn_source(Popularity popularity, int topk, std::uint64_t seed,
                                            std::string description) {
  return std::make_unique<DrawnRouting>(std::move(popularity), topk, seed, std::move(description));
}

}  // namespace moelane::tools
