#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "routing/routing.hpp"

namespace moelane::tools {

// What happens when all experts that have a weight are chosen and a token still wants more.
enum class Tail {
  in_order,  // the next of the list: right for a list that falls so steeply that the rest rounds to weight 0
  uniform,   // any of the rest
};

// How experts are drawn: place i of the list has probability weights[i] / sum and stands for experts[i].
struct Popularity {
  std::vector<std::uint64_t> weights;  // their sum is at most 2^62
  std::vector<std::int32_t> experts;   // a permutation of 0 .. weights.size() - 1
  Tail tail = Tail::uniform;
};

Popularity uniform_popularity(int experts);
Popularity zipf_popularity(int experts, double exponent, std::uint64_t seed);

// A source that draws topk distinct experts (all experts once before any twice) and random positive weights.
std::unique_ptr<RoutingSource> drawn_source(Popularity popularity, int topk, std::uint64_t seed,
                                            std::string description);

}  // namespace moelane::tools
