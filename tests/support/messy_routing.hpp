#pragma once

#include <cstdint>

#include "routing/random.hpp"
#include "routing/routing.hpp"
#include "routing/workload.hpp"

namespace moelane::test {

// What routers rarely do, and tests should.
struct Habits {
  double none = 0.1;      // chance that a choice is -1
  double nothing = 0.05;  // chance that a token has no expert at all
  double hot = 0.2;       // chance that a choice is expert `hot_expert`
  int hot_expert = 0;
  bool strange_weights = true;  // besides -2 to 2: zeros of both signs, denormals, large ones
};

// Experts drawn with repetition: an expert may be named twice in a token.
class MessyRouting final : public tools::RoutingSource {
 public:
  MessyRouting(int experts, int topk, const Habits& habits, std::uint64_t seed)
      : experts_(experts), topk_(topk), habits_(habits), seed_(seed) {}
  tools::Routing draw(int step, int group, int groups, int tokens) const override;
  std::string description() const override { return "messy"; }

 private:
  int experts_, topk_;
  Habits habits_;
  std::uint64_t seed_;
};

// Replaces some elements of x by zeros, denormals, the largest numbers, infinities and NaN, and some weights
// likewise.
void sprinkle(const Config& config, tools::GroupStep& step, tools::Random random);

}  // namespace moelane::test
