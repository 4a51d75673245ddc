#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moelane::tools {

// The router's choice for some tokens: `ids` and `weights` are both [tokens, topk]; an id of -1 is no expert.
struct Routing {
  int tokens = 0;
  int topk = 0;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

// Where routing comes from: drawn, or read from a file. Immutable, so that threads may share one.
class RoutingSource {
 public:
  RoutingSource() = default;
  RoutingSource(const RoutingSource&) = delete;
  RoutingSource& operator=(const RoutingSource&) = delete;
  virtual ~RoutingSource() = default;

  // The routing of one group's `tokens` tokens at `step`: a function of (seed, step, group, groups, tokens)
  // alone. Throws Error(argument) unless step >= 0, 0 <= group < groups and tokens >= 0.
  virtual Routing draw(int step, int group, int groups, int tokens) const = 0;

  // One line for people.
  virtual std::string description() const = 0;

  // How many tokens there are before they repeat; -1: unlimited (drawn). A file's token (step * groups +
  // group) * tokens + i, modulo this number, is token i of a group.
  virtual std::int64_t tokens_available() const { return -1; }

 protected:
  // Throws Error(argument) unless these are what draw() allows.
  static void check_draw(int step, int group, int groups, int tokens);
};

// Opens what `spec` names:
//
//   uniform     topk distinct experts, all equally likely
//   zipf:S      topk distinct experts; popularity falls with rank^-S (S finite, >= 0); the seed chooses ranks
//   FILE        safetensors with topk_ids (I32, I64) and topk_weights (F32, F16, BF16, F64), both [N, topk];
//               an ESFT text trace (topk 6); or a JSON of expert counts, from which routing is drawn
//   FILE#a/b/c  one set of counts in a JSON that holds several
//
// If topk > experts, an expert is repeated only once all others are used as often. Throws Error(argument).
std::unique_ptr<RoutingSource> open_routing(const std::string& spec, int experts, int topk,
                                            std::uint64_t seed);

}  // namespace moelane::tools
