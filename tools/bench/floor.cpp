#include "bench/floor.hpp"

#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "cpu/rows.hpp"
#include "routing/random.hpp"
#include "run/timing.hpp"

namespace moelane::tools {
namespace {

using Copy = std::function<void(void* const*, int, const void*, std::size_t)>;
using Sum = std::function<void(const void* const*, int, void*, std::size_t, std::size_t)>;

void copy_by_string_moves(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
  std::memcpy(to, from, bytes);
#endif
}

std::vector<std::pair<std::string, Copy>> copies() {
  const auto each = [](auto one) {
    return [one](void* const* to, int n, const void* from, std::size_t bytes) {
      for (int i = 0; i < n; ++i) one(to[i], from, bytes);
    };
  };
  return {{"memcpy", each([](void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); })},
          {"rep movsb", each(copy_by_string_moves)},
          {"streaming", each([](void* to, const void* from, std::size_t n) {
             cpu::copy(to, from, n, cpu::Store::stream);
           })},
          {"streaming to all", [](void* const* to, int n, const void* from, std::size_t bytes) {
             cpu::copy_to_many(to, n, from, bytes, cpu::Store::stream);
           }}};
}

// Reads every row from end to end, as fast as loads go, and writes one output row: no arithmetic.
using Line = long long __attribute__((vector_size(64), aligned(1)));
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("default", "arch=haswell", "arch=skylake-avx512")))
#endif
void read_rows(const void* const* rows, int n, std::size_t bytes, void* left_over) {
  Line sum{};
  for (int i = 0; i < n; ++i) {
    const auto* row = static_cast<const char*>(rows[i]);
    for (std::size_t at = 0; at + 64 <= bytes; at += 64) sum ^= *reinterpret_cast<const Line*>(row + at);
  }
  std::memcpy(left_over, &sum, sizeof sum);
}

std::vector<std::pair<std::string, Sum>> sums(const Config& config) {
  const auto by_library = [&config](cpu::Store store) {
    return [&config, store](const void* const* rows, int n, void* out, std::size_t, std::size_t) {
      static const std::vector<float> weights(32, 0.125F);
      cpu::SumArgs args;
      args.rows = rows;
      args.weights = weights.data();
      args.n = n;
      args.in = config.combine_dtype;
      args.hidden = config.hidden;
      args.out = out;
      args.out_type = config.out_dtype;
      args.store = store;
      cpu::weighted_sum(args);
    };
  };
  return {{"sum, streaming", by_library(cpu::Store::stream)},
          {"sum, cached", by_library(cpu::Store::cached)},
          {"read row by row, streaming",
           [](const void* const* rows, int n, void* out, std::size_t bytes, std::size_t out_bytes) {
             alignas(64) char block[4096] = {};
             read_rows(rows, n, bytes, block);
             auto* to = static_cast<char*>(out);
             for (std::size_t at = 0; at < out_bytes; at += sizeof block) {
               cpu::copy(to + at, block, std::min(sizeof block, out_bytes - at), cpu::Store::stream);
             }
           }}};
}

class Floor {
 public:
  explicit Floor(const FloorContext& c)
      : c_(c),
        base_(c.arena.base),
        rank_(c.world.rank()),
        row_(c.options.config.row_bytes() + c.options.config.scale_row_bytes()) {
    for (const auto& groups : c.groups) moves_.push_back(moves_of(c.options, c.placement, rank_, groups));
    fill();
  }

  void dispatch(int set, const Copy& copy) const {
    const Moves& moves = moves_[static_cast<std::size_t>(set)];
    void* to[32];
    for (std::size_t i = 0; i < moves.sent.size(); ++i) {
      int n = 0;
      std::uint64_t reached[16] = {};  // put: one row for each rank
      for (const Move& m : moves.sent[i]) {
        auto& word = reached[m.peer / 64];
        const std::uint64_t bit = std::uint64_t{1} << (m.peer % 64);
        if (!c_.direct && (word & bit) != 0) continue;
        word |= bit;
        to[n++] = base_ + (c_.direct ? c_.map.placed(set, m.peer, m.local, m.row)
                                     : c_.map.slot_of(set, m.peer, rank_, m.index));
      }
      if (n > 0) copy(to, n, base_ + c_.map.x(set, rank_, static_cast<int>(i)), row_);
    }
    if (!c_.direct) {
      for (const auto& r : moves.received) {
        int n = 0;
        for (const Move& m : r.places) to[n++] = base_ + c_.map.placed(set, rank_, m.local, m.row);
        copy(to, n, base_ + c_.map.arrived(set, rank_, r.source, r.index), row_);
      }
    }
    cpu::store_fence();
  }

  void combine(int set, const Copy& copy, const Sum& sum) const {
    const Moves& moves = moves_[static_cast<std::size_t>(set)];
    const int tp = c_.options.config.tp_size;
    const std::size_t answer = c_.options.config.answer_bytes();
    if (!c_.direct) {
      void* to[1];
      for (const auto& r : moves.received) {
        for (const Move& m : r.places) {
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
      for (const Move& m : token) {
        rows[n++] = base_ + (c_.direct ? c_.map.answer(set, m.peer, m.local, m.row)
                                       : c_.map.came_back(set, rank_, m.token, m.k));
      }
      if (n > 0) sum(rows, n, base_ + c_.map.out(set, rank_, token.front().token), answer, c_.map.out_bytes);
    }
    cpu::store_fence();
  }

 private:
  // Random numbers of a normal size: zeros and denormals are summed at other speeds.
  void fill() const {
    Random random(c_.options.seed, 0, static_cast<std::uint64_t>(rank_), stream::first_free + 65);
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
        for (const Move& m : r.places) write(c_.map.answer(set, rank_, m.local, m.row), c_.map.answer_bytes);
        if (!c_.direct) write(c_.map.arrived(set, rank_, r.source, r.index), c_.map.slot);
      }
      for (const auto& token : moves_[s].combined) {
        for (const Move& m : token) {
          if (!c_.direct) write(c_.map.came_back(set, rank_, m.token, m.k), c_.map.answer_bytes);
        }
      }
    }
  }

  const FloorContext& c_;
  std::vector<Moves> moves_;  // by set
  std::byte* base_;
  int rank_;
  std::size_t row_;
};

}  // namespace

nlohmann::json measure_floor(const FloorContext& context) {
  const Floor floor(context);
  const int sets = static_cast<int>(context.groups.size());
  const auto time = [&](const auto& once) {
    for (int set = 0; set < sets; ++set) once(set);  // maps the pages
    std::vector<double> us;
    for (int i = 0; i < context.repeats; ++i) {
      us.push_back(slowest_us(context.world, [&] { once(i % sets); }));
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
  std::pair<std::string, Copy> best_copy;
  double best = 0;
  for (const auto& [name, copy] : copies()) {
    if (context.quick && name != "memcpy" && name != "streaming to all") continue;
    const double us = time([&, &c = copy](int set) { floor.dispatch(set, c); });
    keep("dispatch", name, us);
    if (best == 0 || us < best) {
      best = us;
      best_copy = {name, copy};
    }
  }
  for (const auto& [name, sum] : sums(context.options.config)) {
    if (context.quick && !name.starts_with("sum")) continue;
    keep("combine", name, time([&, &s = sum](int set) { floor.combine(set, best_copy.second, s); }));
  }
  return out;
}

}  // namespace moelane::tools
