#include "bench/bench_plan.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

namespace moelane::tools {
namespace {

std::size_t rounded(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
std::size_t line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

ArenaMap::ArenaMap(const Options& o, int max_local_experts, int sets) : sets_(sets) {
  const Config& c = o.config;
  slot = line(c.row_bytes() + c.scale_row_bytes());
  answer_bytes = line(static_cast<std::size_t>(c.hidden) * size_of(c.combine_dtype));
  out_bytes = static_cast<std::size_t>(c.hidden) * size_of(c.out_dtype);
  ranks_ = u(o.ranks);
  share_ = u((c.max_tokens + c.tp_size - 1) / c.tp_size);
  topk_ = u(c.topk);
  expert_rows_ = o.padded() ? u(o.capacity) : 0;
  const std::size_t rows = u(o.capacity) * (o.padded() ? u(max_local_experts) : 1), tokens = u(c.max_tokens);
  std::size_t at = 0;
  const auto take = [&](std::size_t bytes) {
    const std::size_t start = at;
    at += rounded(bytes);
    return start;
  };
  x_ = take(tokens * slot);
  placed_ = take(rows * slot);
  slots_ = take(ranks_ * share_ * slot);
  answers_ = take(rows * answer_bytes);
  returned_ = take(tokens * topk_ * answer_bytes);
  out_ = take(tokens * out_bytes);
  arrived_ = take(ranks_ * share_ * slot);
  came_back_ = take(tokens * topk_ * answer_bytes);
  part_ = at;
}

Moves moves_of(const Options& o, const Placement& placement, int rank, const std::vector<GroupStep>& groups) {
  const Config& c = o.config;
  const int group = rank / c.tp_size;
  const auto share = [&](int tokens) { return (tokens + c.tp_size - 1) / c.tp_size; };
  Moves moves;
  const int own_tokens = groups[static_cast<std::size_t>(group)].tokens;
  const int each = share(own_tokens), begin = std::min(own_tokens, each * (rank % c.tp_size));
  const int end = std::min(own_tokens, begin + each);
  moves.sent.resize(static_cast<std::size_t>(end - begin));
  moves.combined.resize(static_cast<std::size_t>(own_tokens));
  for (int peer = 0; peer < o.ranks; ++peer) {
    const auto expected = expected_dispatch(c, placement.rank_of(), peer, groups, o.capacity);
    std::map<std::pair<int, int>, Moves::Received> received;
    for (const ExpectedRow& row : expected.rows) {
      if (row.group == group) {
        const Move move{row.token, row.token - begin, row.k, peer, row.local, row.row};
        moves.combined[static_cast<std::size_t>(row.token)].push_back(move);
        if (row.token >= begin && row.token < end)
          moves.sent[static_cast<std::size_t>(move.index)].push_back(move);
      }
      if (peer != rank) continue;
      const int many = share(groups[static_cast<std::size_t>(row.group)].tokens);
      auto& r = received[{row.group, row.token}];
      r.source = row.group * c.tp_size + row.token / many;
      r.index = row.token % many;
      r.group = row.group;
      r.token = row.token;
      r.places.push_back({row.token, r.index, row.k, peer, row.local, row.row});
    }
    for (auto& [key, value] : received) moves.received.push_back(std::move(value));
  }
  for (auto& token : moves.combined) {
    std::sort(token.begin(), token.end(), [](const Move& a, const Move& b) { return a.k < b.k; });
  }
  return moves;
}

int sets_beyond_cache(double bytes, bool on_cards) {
  const long host = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const double cache = on_cards ? 64 << 20 : host > 0 ? static_cast<double>(host) : 32 << 20;
  return static_cast<int>(std::min(2 * cache / std::max(bytes, 1.0), on_cards ? 127.0 : 15.0)) + 1;
}

int sets_for(const Options& o, int least) {
  const Config& c = o.config;
  const double rows = static_cast<double>(o.ranks / c.tp_size) * c.max_tokens * c.topk;
  const double step = rows * static_cast<double>(c.row_bytes() + c.scale_row_bytes()) +
                      rows * static_cast<double>(c.hidden) * static_cast<double>(size_of(c.combine_dtype));
  return std::max(sets_beyond_cache(step, o.on_cards()), least);
}

}  // namespace moelane::tools
