#include "plan/traffic.hpp"

#include <algorithm>

#include "routing/workload.hpp"

namespace moelane::tools {
namespace {

constexpr std::int64_t kMostPicks = 1 << 23;

// The probability that K picks out of E experts without replacement name any of `mine`.
double chance(int experts, int mine, int topk) {
  if (topk >= experts) return mine > 0 ? 1 : 0;
  double none = 1;
  for (int i = 0; i < topk; ++i)
    none *= std::max(0.0, static_cast<double>(experts - mine - i)) / (experts - i);
  return 1 - none;
}

// Counts one group's routing; each token stands for `weight` tokens of an average step.
void count(const Options& o, const Placement& placement, int group, const Routing& routing, double weight,
           Traffic& traffic) {
  const int tp = o.config.tp_size, topk = o.config.topk;
  const int share = std::max(1, (routing.tokens + tp - 1) / tp);
  std::vector<int> seen(static_cast<std::size_t>(o.ranks), -1);
  for (int t = 0; t < routing.tokens; ++t) {
    const int from = group * tp + t / share;
    traffic.sent[static_cast<std::size_t>(from)] += weight;
    for (int k = 0; k < topk; ++k) {
      const std::int32_t id = routing.ids[static_cast<std::size_t>(t) * static_cast<std::size_t>(topk) +
                                          static_cast<std::size_t>(k)];
      if (id < 0) continue;
      const int to = placement.rank_of()[static_cast<std::size_t>(id)];
      traffic.picks.at(from, to) += weight;
      traffic.load[static_cast<std::size_t>(id)] += weight;
      if (seen[static_cast<std::size_t>(to)] == t) continue;
      seen[static_cast<std::size_t>(to)] = t;
      traffic.tokens.at(from, to) += weight;
    }
  }
}

}  // namespace

Traffic expected_traffic(const Options& o, const Placement& placement) {
  const Config& c = o.config;
  Traffic traffic(o.ranks);
  const double share = (o.tokens.low + o.tokens.high) / 2.0 / c.tp_size;
  const double picks = share * o.ranks * c.topk / c.experts;
  traffic.load.assign(static_cast<std::size_t>(c.experts), picks);
  traffic.sent.assign(static_cast<std::size_t>(o.ranks), share);
  for (int to = 0; to < o.ranks; ++to) {
    const double any = chance(c.experts, placement.local_experts(to), c.topk);
    traffic.ranks_per_token += any;
    for (int from = 0; from < o.ranks; ++from) {
      traffic.tokens.at(from, to) = share * any;
      traffic.picks.at(from, to) = share * c.topk * placement.local_experts(to) / c.experts;
    }
  }
  return traffic;
}

Traffic counted_traffic(const Options& o, const Placement& placement, const RoutingSource& source) {
  const Config& c = o.config;
  const Workload workload(c, o.ranks, source, o.tokens, o.seed);
  const int groups = workload.groups();
  Traffic traffic(o.ranks);
  traffic.load.resize(static_cast<std::size_t>(c.experts));
  // Large steps are sampled: the first tokens of each group stand for all.
  const std::int64_t most = std::max<std::int64_t>(1, kMostPicks / c.topk / groups);
  const std::int64_t each = std::min<std::int64_t>(std::max(o.tokens.high, 1), most);
  traffic.steps = static_cast<int>(std::clamp<std::int64_t>(most / each, 1, o.steps));
  for (int step = 0; step < traffic.steps; ++step) {
    for (int group = 0; group < groups; ++group) {
      const int tokens = workload.tokens(step, group);
      if (tokens == 0) continue;
      const int drawn = std::min(tokens, static_cast<int>(each));
      const double weight = static_cast<double>(tokens) / drawn / traffic.steps;
      count(o, placement, group, source.draw(step, group, groups, drawn), weight, traffic);
    }
  }
  double visits = 0, tokens = 0;
  for (int from = 0; from < o.ranks; ++from) {
    tokens += traffic.sent[static_cast<std::size_t>(from)];
    for (int to = 0; to < o.ranks; ++to) visits += traffic.tokens.at(from, to);
  }
  traffic.ranks_per_token = tokens > 0 ? visits / tokens : 0;
  return traffic;
}

}  // namespace moelane::tools
