#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "routing/routing.hpp"
#include "routing/routing_input.hpp"

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

// Throws Error(argument) unless these are what RoutingSource::draw allows.
void check_draw(int step, int group, int groups, int tokens);

// Readers of the file kinds; each refuses what is not allowed.
bool looks_like_safetensors(const InputFile& file);
Routing read_safetensors_routing(const InputFile& file, int experts, int topk);
Routing read_esft_routing(const InputFile& file, int experts, int topk);
// `selector` is the path of keys to one set of counts, or empty.
Popularity read_expert_counts(const InputFile& file, std::string_view selector, int experts);

// What is allowed, and the refusals that say so; `where` names token and k.
constexpr bool is_id(std::int64_t id, int experts) { return id >= -1 && id < experts; }
[[noreturn]] void refuse_id(const InputFile& file, std::string_view where, std::int64_t id, int experts);
[[noreturn]] void refuse_weight(const InputFile& file, std::string_view where, double weight);

}  // namespace moelane::tools
