#include "core/layout.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

namespace moelane {
namespace {

struct Range {
  std::uint64_t begin, end;
  const char* name;
};

// Every byte of one lane that somebody writes, block by block, as the accessors say.
std::vector<Range> ranges(const LaneLayout& at) {
  const Shape& s = at.shape();
  const auto ids_bytes = static_cast<std::uint64_t>(s.share) * static_cast<std::uint64_t>(s.topk) * 4;
  const auto own_bytes = static_cast<std::uint64_t>(s.max_tokens) * static_cast<std::uint64_t>(s.topk) * 4;
  std::vector<Range> all;
  const auto add = [&](std::uint64_t begin, std::uint64_t bytes, const char* name) {
    if (bytes > 0) all.push_back({begin, begin + bytes, name});
  };
  add(at.bell(), 8, "bell");
  add(at.state(), sizeof(LaneState), "state");
  const auto words = static_cast<std::uint64_t>(at.count_words()) * 8;
  add(at.own_counts(), words, "own_counts");
  add(at.cursors(), static_cast<std::uint64_t>(s.experts + s.ranks) * 8, "cursors");
  add(at.own_ids(), own_bytes, "own_ids");
  add(at.own_weights(), own_bytes, "own_weights");
  add(at.own_places(), own_bytes, "own_places");
  for (int source = 0; source < s.ranks; ++source) {
    for (int kind = 0; kind < kSignals; ++kind)
      add(at.signal(static_cast<Signal>(kind), source), 8, "signal");
    for (int which = 0; which < 2; ++which) add(at.expected(which, source), 8, "expected");
    if (s.direct) add(at.counts(source), words, "counts");
    if (!s.put) continue;
    add(at.kept(source), static_cast<std::uint64_t>(at.kept_words()) * 4, "kept");
    add(at.routing(source), sizeof(RoutingHeader), "routing header");
    add(at.routing_ids(source), ids_bytes, "routing ids");
    if (s.weights) add(at.routing_weights(source), ids_bytes, "routing weights");
    add(at.places(source), ids_bytes, "places");
    for (int t = 0; t < s.share; ++t) {
      add(at.slot(source, t), static_cast<std::uint64_t>(s.slot_bytes()), "slot");
    }
  }
  for (int t = 0; s.put && t < s.max_tokens; ++t) {
    for (int k = 0; k < s.topk; ++k)
      add(at.answer(t, k), static_cast<std::uint64_t>(s.answer_bytes), "answer");
  }
  for (int t = 0; s.staged && t < s.share; ++t) {
    add(at.stage(t), static_cast<std::uint64_t>(s.slot_bytes()), "stage");
  }
  if (s.put && (s.by_rank || s.staged))
    add(at.answer_stage(0), static_cast<std::uint64_t>(s.answer_bytes), "answer_stage");
  add(at.symmetric(), static_cast<std::uint64_t>(s.symmetric_bytes), "symmetric");
  return all;
}

Config any_config(int ranks) {
  Config c;
  c.experts = *rc::gen::inRange(1, 30);
  c.topk = *rc::gen::inRange(1, 9);
  c.hidden = *rc::gen::inRange(1, 100);
  c.max_tokens = *rc::gen::inRange(1, 10);
  c.tp_size = *rc::gen::inRange(1, ranks + 1);
  while (ranks % c.tp_size != 0) --c.tp_size;
  c.in_flight = *rc::gen::inRange(1, 4);
  c.dtype = *rc::gen::element(DType::fp8_e4m3, DType::bf16, DType::fp32);
  c.combine_dtype = *rc::gen::element(DType::bf16, DType::fp32);
  c.scale_columns = *rc::gen::inRange(0, 5);
  c.layout = *rc::gen::element(Layout::padded, Layout::contiguous, Layout::ranked);
  c.way = *rc::gen::element(Way::automatic, Way::put, Way::direct);
  c.partial_sums = c.way != Way::direct && c.layout != Layout::ranked && *rc::gen::arbitrary<bool>();
  c.force_puts = c.way != Way::direct && *rc::gen::arbitrary<bool>();
  c.symmetric_bytes = *rc::gen::inRange<std::size_t>(0, 10000);
  return c;
}

// All lanes together: nothing overlaps, nothing is outside, everything is aligned to what it holds.
TEST(Layout, BlocksAreDisjoint) {
  const bool held = rc::check("disjoint", [] {
    const int ranks = *rc::gen::inRange(1, 9), rank = *rc::gen::inRange(0, ranks);
    const Config config = any_config(ranks);
    config.validate(ranks);
    const Shape shape = shape_of(config, ranks, rank);
    std::vector<Range> all;
    for (int source = 0; source < ranks; ++source)
      all.push_back({farewell(source), farewell(source) + 8, "farewell"});
    for (int lane = 0; lane < config.in_flight; ++lane) {
      const LaneLayout at(shape, lane);
      const std::vector<Range> some = ranges(at);
      all.insert(all.end(), some.begin(), some.end());
      RC_ASSERT(at.symmetric() % 4096 == 0U);
      RC_ASSERT(at.bell() % 64 == 0U);
      for (int source = 0; source < ranks; ++source) {
        RC_ASSERT(at.signal(Signal::counts, source) % 8 == 0U);
        if (!shape.put) continue;
        RC_ASSERT(at.slot(source, 0) % 64 == 0U);
        RC_ASSERT(at.routing(source) % 64 == 0U);
        RC_ASSERT(at.routing_bytes() >= sizeof(RoutingHeader) + static_cast<std::uint64_t>(shape.share) * 4 *
                                                                    static_cast<std::uint64_t>(shape.topk) *
                                                                    (shape.weights ? 2 : 1));
      }
    }
    std::sort(all.begin(), all.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < all.size(); ++i) {
      RC_LOG() << all[i - 1].name << " ends at " << all[i - 1].end << ", " << all[i].name << " begins at "
               << all[i].begin << "\n";
      RC_ASSERT(all[i - 1].end <= all[i].begin);
    }
    RC_ASSERT(all.back().end <= config.mapped_bytes(ranks));
    RC_ASSERT(config.mapped_bytes(ranks) % 4096 == 0U);
  });
  EXPECT_TRUE(held);
}

// Peers name a byte by its offset, so all ranks have to agree on every one.
TEST(Layout, IsTheSameOnEveryRank) {
  const bool held = rc::check("same", [] {
    const int ranks = *rc::gen::inRange(1, 9);
    const Config config = any_config(ranks);
    const int lane = *rc::gen::inRange(0, config.in_flight);
    const std::vector<Range> first = ranges(LaneLayout(shape_of(config, ranks, 0), lane));
    for (int rank = 1; rank < ranks; ++rank) {
      const std::vector<Range> other = ranges(LaneLayout(shape_of(config, ranks, rank), lane));
      RC_ASSERT(first.size() == other.size());
      for (std::size_t i = 0; i < first.size(); ++i) RC_ASSERT(first[i].begin == other[i].begin);
    }
  });
  EXPECT_TRUE(held);
}

TEST(Layout, SharesCoverAGroupOnceAndInOrder) {
  for (int tp = 1; tp <= 9; ++tp) {
    for (int m = 0; m <= 40; ++m) {
      int next = 0;
      for (int j = 0; j < tp; ++j) {
        const Share share = share_of(m, tp, j);
        EXPECT_GE(share.count, 0);
        EXPECT_LE(share.count, share_of(40, tp, 0).count);
        EXPECT_TRUE(share.count == 0 || share.begin == next);
        next += share.count;
      }
      EXPECT_EQ(next, m) << "tp " << tp;
    }
  }
}

// 32-bit offsets would wrap here: 4 GiB of slots and more.
TEST(Layout, OffsetsBeyondFourGiB) {
  Config config;
  config.experts = 256;
  config.topk = 8;
  config.hidden = 7168;
  config.max_tokens = 100000;
  config.dtype = config.combine_dtype = DType::fp32;
  const LaneLayout at(shape_of(config, 8, 0), 1);
  const std::uint64_t slots = at.slot(7, 99999) - at.slot(0, 0);
  EXPECT_EQ(slots, (std::uint64_t{8} * 100000 - 1) * 7168 * 4);
  EXPECT_EQ(at.answer(99999, 7) - at.answer(0, 0), (std::uint64_t{8} * 100000 - 1) * 7168 * 4);
  EXPECT_GT(config.heap_bytes(8), 4 * slots);
}

}  // namespace
}  // namespace moelane
