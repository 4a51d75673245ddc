#include "bench/baseline.hpp"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

#include "cpu/rows.hpp"
#include "moelane/error.hpp"
#include "reference/expected_combine.hpp"
#include "reference/toy_expert.hpp"
#include "run/timing.hpp"

namespace moelane::tools {
namespace {

// An all-to-all moves, for each source and expert, a block of rows. Padded: every block has max_tokens rows,
// whatever is in them (the article's baseline). Exact: counts travel first, and blocks have as many rows as
// there are.
class AllToAll {
 public:
  AllToAll(const BaselineInput& c, bool padded)
      : c_(c),
        config_(c.rank.options.config),
        padded_(padded),
        me_(c.rank.world.rank()),
        ranks_(c.rank.options.ranks),
        experts_(config_.experts),
        row_(config_.row_bytes() + config_.scale_row_bytes()),
        answer_(static_cast<std::size_t>(config_.hidden) * size_of(config_.combine_dtype)),
        own_(c.groups[static_cast<std::size_t>(me_)]),
        places_(static_cast<std::size_t>(own_.tokens * config_.topk), -1) {}

  // Packs the own rows by expert, then every rank fetches the blocks of its experts.
  void dispatch() {
    pack();
    c_.rank.world.barrier();
    for (int source = 0; source < ranks_; ++source) {
      for (const std::int32_t e : c_.rank.placement.experts_of(me_)) {
        cpu::copy(received(source, e, row_), packed(source, e, row_), rows_in(source, e) * row_,
                  cpu::Store::stream);
      }
    }
    cpu::store_fence();
    c_.rank.world.barrier();
  }

  // The experts, outside of the timed part: rows that were received, answers beside them.
  void experts() {
    for (int source = 0; source < ranks_; ++source) {
      for (const std::int32_t e : c_.rank.placement.experts_of(me_)) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(counts(source)[e]); ++i) {
          const std::byte* row = received(source, e, row_) + i * row_;
          toy_expert(config_, e, row, config_.scale_columns > 0 ? row + config_.row_bytes() : nullptr,
                     answers(source, e) + i * answer_);
        }
      }
    }
    c_.rank.world.barrier();
  }

  // Every rank fetches the answers to its rows, then sums them.
  void combine(std::vector<std::byte>& out) {
    for (int e = 0; e < experts_; ++e) {
      const std::int32_t home = c_.rank.placement.rank_of()[static_cast<std::size_t>(e)];
      cpu::copy(returned(e), answers_at(home, me_, e), rows_in(me_, e) * answer_, cpu::Store::stream);
    }
    cpu::store_fence();
    for (int t = 0; t < own_.tokens; ++t) {
      const void* rows[32];
      float weights[32];
      int n = 0;
      for (int k = 0; k < config_.topk; ++k) {
        const auto i = static_cast<std::size_t>(t * config_.topk + k);
        if (own_.ids[i] < 0) continue;
        weights[n] = own_.weights[i];
        rows[n++] = returned(own_.ids[i]) + static_cast<std::size_t>(places_[i]) * answer_;
      }
      cpu::SumArgs args;
      args.rows = rows;
      args.weights = weights;
      args.n = n;
      args.in = config_.combine_dtype;
      args.hidden = config_.hidden;
      args.out = out.data() + static_cast<std::size_t>(t) * out_row();
      args.out_type = config_.out_dtype;
      args.store = cpu::Store::stream;
      cpu::weighted_sum(args);
    }
    cpu::store_fence();
    c_.rank.world.barrier();
  }

  std::size_t out_row() const {
    return static_cast<std::size_t>(config_.hidden) * size_of(config_.out_dtype);
  }
  const GroupStep& own() const { return own_; }

 private:
  static std::size_t u(std::int64_t value) { return static_cast<std::size_t>(value); }

  // Three areas a rank, each with max_tokens rows for every (peer, expert) pair that can need them, used by
  // both ways: what a rank packed (later: answers that came back), what it received, and the answers it made.
  std::size_t block() const { return u(config_.max_tokens) * std::max(row_, answer_); }
  std::size_t area() const {
    return u(std::max(experts_, ranks_ * c_.rank.placement.max_local_experts())) * block();
  }
  std::byte* area_of(int rank, int which) const {
    return c_.arena.base + c_.begin + u(ranks_) * u(experts_) * 4 + (u(rank) * 3 + u(which)) * area();
  }
  std::int32_t* counts(int source) const {
    return reinterpret_cast<std::int32_t*>(c_.arena.base + c_.begin) + u(source) * u(experts_);
  }
  std::size_t rows_in(int source, int e) const {
    return padded_ ? u(config_.max_tokens) : u(counts(source)[e]);
  }

  // Where a block begins: at a multiple of max_tokens rows, or behind the rows of all blocks before it.
  std::size_t first_row(int source, int e) const {
    if (padded_) return u(e) * u(config_.max_tokens);
    return u(std::accumulate(counts(source), counts(source) + e, std::int64_t{0}));
  }
  std::byte* packed(int source, int e, std::size_t row) const {
    return area_of(source, 0) + first_row(source, e) * row;
  }
  std::byte* returned(int e) const { return area_of(me_, 0) + first_row(me_, e) * answer_; }
  // Received rows lie by expert, then source: as many experts as fit in one area, since all sources together
  // send no more than experts * max_tokens rows to the experts of all ranks.
  std::size_t received_row(int home, int source, int e) const {
    std::size_t row = 0;
    for (const std::int32_t earlier : c_.rank.placement.experts_of(home)) {
      for (int s = 0; s < ranks_; ++s) {
        if (earlier == e && s == source) return row;
        row += rows_in(s, earlier);
      }
    }
    return row;
  }
  std::byte* received(int source, int e, std::size_t row) const {
    return area_of(me_, 1) + received_row(me_, source, e) * row;
  }
  std::byte* answers(int source, int e) const { return answers_at(me_, source, e); }
  std::byte* answers_at(int home, int source, int e) const {
    return area_of(home, 2) + received_row(home, source, e) * answer_;
  }

  void pack() {
    std::memset(counts(me_), 0, u(experts_) * 4);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (own_.ids[i] >= 0) places_[i] = counts(me_)[own_.ids[i]]++;
    }
    for (int e = 0; e < experts_; ++e) {
      if (counts(me_)[e] > config_.max_tokens) {
        throw Error(ErrorKind::argument,
                    fmt::format("--baseline has blocks of {} rows, and the routing names expert "
                                "{} {} times; allowed is once for each token",
                                config_.max_tokens, e, counts(me_)[e]));
      }
    }
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (own_.ids[i] < 0) continue;
      const std::size_t token = i / u(config_.topk);
      std::byte* to = packed(me_, own_.ids[i], row_) + u(places_[i]) * row_;
      cpu::copy(to, own_.x.data() + token * config_.row_bytes(), config_.row_bytes(), cpu::Store::stream);
      if (config_.scale_columns > 0) {
        std::memcpy(to + config_.row_bytes(), own_.scales.data() + token * config_.scale_row_bytes(),
                    config_.scale_row_bytes());
      }
    }
    cpu::store_fence();
  }

  const BaselineInput& c_;
  const Config& config_;
  bool padded_;
  int me_, ranks_, experts_;
  std::size_t row_, answer_;
  const GroupStep& own_;
  std::vector<std::int32_t> places_;
};

nlohmann::json time_one(const BaselineInput& c, const char* name, bool padded, int repeats) {
  AllToAll way(c, padded);
  std::vector<std::byte> out(static_cast<std::size_t>(c.rank.options.config.max_tokens) * way.out_row());
  std::vector<double> dispatch_us, combine_us, both;
  for (int i = 0; i <= repeats; ++i) {
    const double d = slowest_us(c.rank.world, [&] { way.dispatch(); });
    way.experts();
    const double r = slowest_us(c.rank.world, [&] { way.combine(out); });
    if (i == 0) continue;  // maps the pages
    dispatch_us.push_back(d);
    combine_us.push_back(r);
    both.push_back(d + r);
  }
  const auto expected =
      expected_combine(c.rank.options.config, c.rank.placement.rank_of(), way.own(), nullptr, {});
  if (std::memcmp(expected.data(), out.data(), expected.size()) != 0) {
    throw Error(ErrorKind::transport,
                fmt::format("baseline '{}' gave a wrong result on rank {}", name, c.rank.world.rank()));
  }
  return {{"name", name},
          {"us", {{"median", median(both)}}},
          {"dispatch_us", median(dispatch_us)},
          {"combine_us", median(combine_us)}};
}

}  // namespace

std::size_t baseline_bytes(const Options& o, const Placement& placement) {
  const Config& c = o.config;
  if (c.tp_size != 1 || c.layout == Layout::ranked || c.partial_sums || o.accumulate) {
    throw Error(ErrorKind::argument,
                "--baseline is given, allowed is only --tp 1 without --layout ranked, --partial-sums or "
                "--accumulate");
  }
  const std::size_t row = std::max(c.row_bytes() + c.scale_row_bytes(),
                                   static_cast<std::size_t>(c.hidden) * size_of(c.combine_dtype));
  const auto n = static_cast<std::size_t>(o.ranks), e = static_cast<std::size_t>(c.experts);
  const std::size_t blocks = std::max(e, n * static_cast<std::size_t>(placement.max_local_experts()));
  return n * e * 4 + n * 3 * blocks * static_cast<std::size_t>(c.max_tokens) * row;
}

nlohmann::json measure_baselines(const BaselineInput& c) {
  nlohmann::json list = nlohmann::json::array();
  list.push_back(time_one(c, "all-to-all, every padding row", true, std::min(c.repeats, 3)));
  list.push_back(time_one(c, "all-to-all, exact counts, a row per expert", false, c.repeats));
  return list;
}

}  // namespace moelane::tools
