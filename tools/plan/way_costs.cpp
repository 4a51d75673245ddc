#include "plan/way_costs.hpp"

#include <algorithm>
#include <numeric>

namespace moelane::tools {
namespace {

using nlohmann::json;

// What the ranks do in one phase, in rows and bytes; [ranks] each.
struct Phase {
  explicit Phase(int n) : ranks(n) {
    for (std::vector<double>* v : {&rows, &placed, &local, &out, &in, &memory})
      v->resize(static_cast<std::size_t>(n));
  }
  void move(int from, int to, double count, double row) {
    rows[u(from)] += count;
    if (from == to) {
      local[u(from)] += count * row;
    } else {
      out[u(from)] += count * row;
      in[u(to)] += count * row;
    }
  }
  static std::size_t u(int i) { return static_cast<std::size_t>(i); }

  int ranks;
  std::vector<double> rows, placed, local, out, in, memory;
};

double mean(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}
double most(const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); }

json shown(const Options& o, const Phase& p) {
  const double link = std::max(most(p.out), most(p.in));
  const double memory_us = most(p.memory) / (o.memory_gbs * 1e3), link_us = link / (o.link_gbs * 1e3);
  return {{"rows", mean(p.rows)},
          {"rows_placed", mean(p.placed)},
          {"bytes", mean(p.local) + mean(p.out)},
          {"bytes_local", mean(p.local)},
          {"bytes_link", mean(p.out)},
          {"most_link_bytes", link},
          {"memory_bytes", mean(p.memory)},
          {"most_memory_bytes", most(p.memory)},
          {"floor_us", {{"memory", memory_us}, {"link", link_us}}}};
}

}  // namespace

json way_costs(bool direct, const Options& o, const Traffic& t) {
  const Config& c = o.config;
  const int ranks = o.ranks, tp = c.tp_size;
  const bool ranked = c.layout == Layout::ranked, by_rank = ranked || c.partial_sums;
  const auto row = static_cast<double>(c.row_bytes() + c.scale_row_bytes());
  const auto answer = static_cast<double>(c.answer_bytes());
  const double expert_row = static_cast<double>(c.hidden) * static_cast<double>(size_of(c.combine_dtype));
  const double out_row = static_cast<double>(c.hidden) * static_cast<double>(size_of(c.out_dtype));

  Phase dispatch(ranks), combine(ranks);
  const PairTable& placed = ranked ? t.tokens : t.picks;    // rows in the outputs
  const PairTable& answers = by_rank ? t.tokens : t.picks;  // rows on their way back
  for (int from = 0; from < ranks; ++from) {
    const auto f = Phase::u(from);
    dispatch.memory[f] += t.sent[f] * row;  // read from the caller
    for (int to = 0; to < ranks; ++to) {
      const auto r = Phase::u(to);
      dispatch.placed[r] += placed.at(from, to);
      // Into the slot, out of it, into the output; or into the output alone.
      const double moved = direct ? placed.at(from, to) : t.tokens.at(from, to);
      dispatch.move(from, to, moved, row);
      dispatch.memory[r] += row * (direct ? moved : 2 * moved + placed.at(from, to));

      // Every rank of the group of `from` gets the answers of `to`: out of the expert's output, once for each
      // reader (direct); or out of it once, into each reader's slot and out of that.
      const double back = answers.at(from, to);
      combine.memory[r] +=
          direct ? tp * back * expert_row : (ranked ? back : t.picks.at(from, to)) * expert_row;
      for (int reader = from / tp * tp; reader < from / tp * tp + tp; ++reader) {
        combine.move(to, reader, back, answer);
        combine.placed[Phase::u(reader)] += back;
        if (!direct) combine.memory[Phase::u(reader)] += 2 * back * answer;
      }
    }
    for (int reader = from / tp * tp; reader < from / tp * tp + tp; ++reader) {
      combine.memory[Phase::u(reader)] += t.sent[f] * out_row * (o.accumulate ? 2 : 1);
    }
  }
  return {{"dispatch", shown(o, dispatch)}, {"combine", shown(o, combine)}};
}

}  // namespace moelane::tools
