#include "bench/row_moves.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "reference/expected_dispatch.hpp"

namespace moelane::tools {

RowMoves row_moves_of(const Options& o, const Placement& placement, int rank,
                      const std::vector<GroupStep>& groups) {
  const Config& c = o.config;
  const int group = rank / c.tp_size;
  const auto share = [&](int tokens) { return (tokens + c.tp_size - 1) / c.tp_size; };
  RowMoves moves;
  const int own_tokens = groups[static_cast<std::size_t>(group)].tokens;
  const int each = share(own_tokens), begin = std::min(own_tokens, each * (rank % c.tp_size));
  const int end = std::min(own_tokens, begin + each);
  moves.sent.resize(static_cast<std::size_t>(end - begin));
  moves.combined.resize(static_cast<std::size_t>(own_tokens));
  for (int peer = 0; peer < o.ranks; ++peer) {
    const auto expected = expected_dispatch(c, placement.rank_of(), peer, groups, o.capacity);
    std::map<std::pair<int, int>, RowMoves::Received> received;
    for (const ExpectedRow& row : expected.rows) {
      if (row.group == group) {
        const RowMove move{row.token, row.token - begin, row.k, peer, row.local, row.row};
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
    std::sort(token.begin(), token.end(), [](const RowMove& a, const RowMove& b) { return a.k < b.k; });
  }
  return moves;
}

}  // namespace moelane::tools
