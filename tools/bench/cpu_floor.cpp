#include "bench/cpu_floor.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "bench/row_moves.hpp"
#include "bench/row_stores.hpp"
#include "cpu/rows.hpp"
#include "routing/random.hpp"
#include "run/timing.hpp"

namespace moelane::tools {
namespace {

class Floor {
 public:
  explicit Floor(const CpuFloorInput& c)
      : c_(c),
        direct_(c.rank.direct()),
        base_(c.arena.base),
        rank_(c.rank.rank()),
        row_(c.rank.options.config.row_bytes() + c.rank.options.config.scale_row_bytes()) {
    for (const auto& groups : c.groups)
      moves_.push_back(row_moves_of(c.rank.options, c.rank.placement, rank_, groups));
    fill();
  }

  void dispatch(int set, const CopyRow& copy) const {
    const RowMoves& moves = moves_[static_cast<std::size_t>(set)];
    void* to[32];
    for (std::size_t i = 0; i < moves.sent.size(); ++i) {
      int n = 0;
      std::uint64_t reached[16] = {};  // put: one row for each rank
      for (const RowMove& m : moves.sent[i]) {
        auto& word = reached[m.peer / 64];
        const std::uint64_t bit = std::uint64_t{1} << (m.peer % 64);
        if (!direct_ && (word & bit) != 0) continue;
        word |= bit;
        to[n++] = base_ + (direct_ ? c_.map.placed(set, m.peer, m.local, m.row)
                                   : c_.map.slot_of(set, m.peer, rank_, m.index));
      }
      if (n > 0) copy(to, n, base_ + c_.map.x(set, rank_, static_cast<int>(i)), row_);
    }
    if (!direct_) {
      for (const auto& r : moves.received) {
        int n = 0;
        for (const RowMove& m : r.places) to[n++] = base_ + c_.map.placed(set, rank_, m.local, m.row);
        copy(to, n, base_ + c_.map.arrived(set, rank_, r.source, r.index), row_);
      }
    }
    cpu::store_fence();
  }

  void combine(int set, const CopyRow& copy, const SumRows& sum) const {
    const RowMoves& moves = moves_[static_cast<std::size_t>(set)];
    const int tp = c_.rank.options.config.tp_size;
    const std::size_t answer = c_.rank.options.config.answer_bytes();
    if (!direct_) {
      void* to[1];
      for (const auto& r : moves.received) {
        for (const RowMove& m : r.places) {
          for (int j = 0; j < tp; ++j) {
            to[0] = base_ + c_.map.returned(set, r.group * tp + j, r.token, m.k);
            copy(to, 1, base_ + c_.map.answer(set, rank_, m.local, m.row), answer);
          }
        }
      }
    }
    const void* rows[32];
    for (const auto& token : moves.combined) {
      int n = 0;
      for (const RowMove& m : token) {
        rows[n++] = base_ + (direct_ ? c_.map.answer(set, m.peer, m.local, m.row)
                                     : c_.map.came_back(set, rank_, m.token, m.k));
      }
      if (n > 0) sum(rows, n, base_ + c_.map.out(set, rank_, token.front().token), answer, c_.map.out_bytes);
    }
    cpu::store_fence();
  }

 private:
  // Random numbers of a normal size: zeros and denormals are summed at other speeds.
  void fill() const {
    Random random(c_.rank.options.seed, 0, static_cast<std::uint64_t>(rank_), stream::first_free + 65);
    const auto write = [&](std::size_t at, std::size_t bytes) {
      for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
        const std::uint64_t value = (random.next() & 0x807F807F807F807FULL) | 0x3C003C003C003C00ULL;
        std::memcpy(base_ + at + i, &value, 8);
      }
    };
    for (std::size_t s = 0; s < moves_.size(); ++s) {
      const int set = static_cast<int>(s);
      for (std::size_t i = 0; i < moves_[s].sent.size(); ++i) {
        write(c_.map.x(set, rank_, static_cast<int>(i)), c_.map.slot);
      }
      for (const auto& r : moves_[s].received) {
        for (const RowMove& m : r.places)
          write(c_.map.answer(set, rank_, m.local, m.row), c_.map.answer_bytes);
        if (!direct_) write(c_.map.arrived(set, rank_, r.source, r.index), c_.map.slot);
      }
      for (const auto& token : moves_[s].combined) {
        for (const RowMove& m : token) {
          if (!direct_) write(c_.map.came_back(set, rank_, m.token, m.k), c_.map.answer_bytes);
        }
      }
    }
  }

  const CpuFloorInput& c_;
  std::vector<RowMoves> moves_;  // by set
  bool direct_;
  std::byte* base_;
  int rank_;
  std::size_t row_;
};

}  // namespace

nlohmann::json measure_cpu_floor(const CpuFloorInput& input) {
  const Floor floor(input);
  const int sets = static_cast<int>(input.groups.size());
  const auto time = [&](const auto& once) {
    for (int set = 0; set < sets; ++set) once(set);  // maps the pages
    std::vector<double> us;
    for (int i = 0; i < input.repeats; ++i) {
      us.push_back(slowest_us(input.rank.world, [&] { once(i % sets); }));
    }
    return median(us);
  };
  nlohmann::json out{{"dispatch_us", 0.0}, {"combine_us", 0.0}};
  const auto keep = [&](const char* phase, const std::string& name, double us) {
    const std::string key = std::string(phase) + "_us";
    out["all"][phase][name] = us;
    if (out[key] == 0.0 || us < out[key].get<double>()) {
      out[key] = us;
      out[std::string(phase) + "_store"] = name;
    }
  };
  std::pair<std::string, CopyRow> best_copy;
  double best = 0;
  for (const auto& [name, copy] : ways_to_copy()) {
    if (input.quick && name != "memcpy" && name != "streaming to all") continue;
    const double us = time([&, &c = copy](int set) { floor.dispatch(set, c); });
    keep("dispatch", name, us);
    if (best == 0 || us < best) {
      best = us;
      best_copy = {name, copy};
    }
  }
  for (const auto& [name, sum] : ways_to_sum(input.rank.options.config)) {
    if (input.quick && !name.starts_with("sum")) continue;
    keep("combine", name, time([&, &s = sum](int set) { floor.combine(set, best_copy.second, s); }));
  }
  return out;
}

}  // namespace moelane::tools
