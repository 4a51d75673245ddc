#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "reference/compare_dispatch.hpp"
#include "reference/expected_combine.hpp"
#include "reference/expected_dispatch.hpp"
#include "routing/routing.hpp"

// The judge itself: the reference by hand, and that it sees what is wrong.
namespace moelane::tools {
namespace {

// Two groups on two ranks; experts 0, 2 and 3 on rank 1, expert 1 on rank 0.
const std::vector<std::int32_t> kTable{1, 0, 1, 1};

Config small(Layout layout) {
  Config config;
  config.experts = 4;
  config.topk = 2;
  config.hidden = 3;
  config.max_tokens = 4;
  config.layout = layout;
  config.dtype = config.combine_dtype = config.out_dtype = DType::fp32;
  return config;
}

GroupStep group_of(const std::vector<std::int32_t>& ids, float first) {
  GroupStep group;
  group.tokens = static_cast<int>(ids.size() / 2);
  group.ids = ids;
  for (std::size_t i = 0; i < ids.size(); ++i) group.weights.push_back(static_cast<float>(i + 1));
  for (int i = 0; i < 3 * group.tokens; ++i, first += 1) {
    const auto bits = std::bit_cast<std::array<std::byte, 4>>(first);
    group.x.insert(group.x.end(), bits.begin(), bits.end());
  }
  return group;
}

std::vector<GroupStep> two_groups() {
  return {group_of({0, 1, 2, 2, -1, 3}, 1), group_of({3, 0, -1, -1}, 100)};
}

std::string text(const ExpectedDispatch& expected) {
  std::string out;
  for (const ExpectedRow& r : expected.rows) {
    for (const std::int32_t v : {r.local, r.row, r.group, r.token, r.k}) out += std::to_string(v) + " ";
    out += "| ";
  }
  out += "counts";
  for (const std::int32_t c : expected.counts) out += " " + std::to_string(c);
  for (const std::int32_t c : expected.offsets) out += " @" + std::to_string(c);
  out += " rows " + std::to_string(expected.row_count) + (expected.overflow ? " overflow" : "");
  return out;
}

TEST(Reference, DispatchByHand) {
  Config padded = small(Layout::padded), contiguous = small(Layout::contiguous),
         ranked = small(Layout::ranked);
  const auto groups = two_groups();
  const auto of = [&](const Config& config, int rank, int capacity) {
    return text(expected_dispatch(config, kTable, rank, groups, capacity));
  };
  EXPECT_EQ(of(padded, 0, 9), "0 0 0 0 1 | counts 1 rows 0");
  EXPECT_EQ(of(padded, 1, 9),
            "0 0 0 0 0 | 1 0 0 1 0 | 1 1 0 1 1 | 2 0 0 2 1 | 2 1 1 0 0 | 0 1 1 0 1 | counts 2 2 2 rows 0");
  EXPECT_EQ(of(padded, 1, 1), "0 0 0 0 0 | 1 0 0 1 0 | 2 0 0 2 1 | counts 1 1 1 rows 0 overflow");
  contiguous.alignment = 4;
  EXPECT_EQ(of(contiguous, 1, 99),
            "0 0 0 0 0 | 1 4 0 1 0 | 1 5 0 1 1 | 2 8 0 2 1 | 2 9 1 0 0 | 0 1 1 0 1 | "
            "counts 2 2 2 @0 @4 @8 @12 rows 0");
  EXPECT_EQ(of(contiguous, 1, 5),
            "0 0 0 0 0 | 1 4 0 1 0 | 0 1 1 0 1 | counts 2 1 0 @0 @4 @5 @5 rows 0 overflow");
  EXPECT_EQ(of(ranked, 1, 9), "0 0 0 0 0 | 1 1 0 1 0 | 2 2 0 2 1 | 2 3 1 0 0 | counts 2 2 2 rows 4");
  EXPECT_EQ(of(ranked, 1, 3), "0 0 0 0 0 | 1 1 0 1 0 | 2 2 0 2 1 | counts 1 2 1 rows 3 overflow");
  const std::vector<std::int32_t> capacities{0, 1};
  EXPECT_EQ(dropped_rows(padded, kTable, 0, groups, capacities),
            (std::vector<bool>{false, true, false, true, false, false}));
  EXPECT_EQ(dropped_rows(padded, kTable, 1, groups, capacities),
            (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(dropped_rows(ranked, kTable, 0, groups, capacities),
            (std::vector<bool>{false, true, true, false, false, true}));
}

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Reference, CombineByHand) {
  Config config = small(Layout::padded);
  const GroupStep group = two_groups()[0];  // x = 1 2 3, 4 5 6, 7 8 9; factors 1/4, 1/2, 1, 2
  EXPECT_EQ(floats(expected_combine(config, kTable, group, nullptr, {})),
            (std::vector<float>{1.25F, 2.5F, 3.75F, 28, 35, 42, 84, 96, 108}));
  const std::vector<float> old{1, 0, 0, 0, 0, 0, 0, 0, -8};
  const auto* bytes = reinterpret_cast<const std::byte*>(old.data());
  EXPECT_EQ(floats(expected_combine(config, kTable, group, bytes, {false, true, false, false, true, false})),
            (std::vector<float>{1.25F, 0.5F, 0.75F, 28, 35, 42, 84, 96, 100}));
  // Sums before sending are rounded to bf16, 8 bits: 3 * 1.0078125 = 3.0234375, halfway, to the even 3.03125.
  config.partial_sums = true;
  GroupStep one = group_of({2, 3}, 1.0078125F);
  one.weights = {1, 1};
  EXPECT_EQ(floats(expected_combine(config, kTable, one, nullptr, {}))[0], 3.03125F);
  config.partial_sums = false;
  EXPECT_EQ(floats(expected_combine(config, kTable, one, nullptr, {}))[0], 3.0234375F);
}

// A judge that says yes to everything would pass all other tests.
TEST(Reference, SeesEveryWrongByte) {
  for (const Layout layout : {Layout::padded, Layout::contiguous, Layout::ranked}) {
    Config config = small(layout);
    config.scale_columns = 2;
    const auto source = open_routing("uniform", 4, 2, 5);
    const Workload workload(config, 2, *source, {3, 4}, 5);
    const std::vector<GroupStep> groups{workload.make(0, 0), workload.make(0, 1)};
    constexpr int kCapacity = 20;
    const ExpectedDispatch expected = expected_dispatch(config, kTable, 1, groups, kCapacity);
    const std::size_t experts = 3, rows = layout == Layout::padded ? experts * kCapacity : kCapacity;
    std::vector<std::byte> x(rows * 12), scales(rows * 8);
    std::vector<std::int32_t> counts = expected.counts, offsets = expected.offsets,
                              row_count{expected.row_count};
    std::vector<std::int32_t> ids(rows * 2);
    std::vector<float> weights(rows * 2);
    for (const ExpectedRow& r : expected.rows) {
      const auto row =
          static_cast<std::size_t>(layout == Layout::padded ? r.local * kCapacity + r.row : r.row);
      const auto& from = groups[static_cast<std::size_t>(r.group)];
      const auto token = static_cast<std::size_t>(r.token);
      std::memcpy(x.data() + row * 12, from.x.data() + token * 12, 12);
      std::memcpy(scales.data() + row * 8, from.scales.data() + token * 8, 8);
      for (std::size_t k = 0; k < 2; ++k) {
        constexpr std::int32_t kLocal[] = {0, -1, 1, 2};
        const std::int32_t id = from.ids[token * 2 + k];
        ids[row * 2 + k] = id < 0 ? -1 : kLocal[id];
        weights[row * 2 + k] = ids[row * 2 + k] < 0 ? 0 : from.weights[token * 2 + k];
      }
    }
    DispatchedView got;
    got.x = x.data();
    got.row_stride = 12;
    got.expert_stride = kCapacity * 12;
    got.scales = scales.data();
    got.scale_row_stride = 8;
    got.scale_expert_stride = kCapacity * 8;
    got.scale_column_stride = 4;
    got.counts = counts.data();
    got.offsets = offsets.data();
    got.row_count = row_count.data();
    got.ids = ids.data();
    got.weights = weights.data();
    const auto wrong = [&] { return compare_dispatch(config, kTable, 1, groups, expected, got); };
    EXPECT_EQ(wrong().bytes, 0) << wrong().first;
    const ExpectedRow& last = expected.rows.back();
    const auto row =
        static_cast<std::size_t>(layout == Layout::padded ? last.local * kCapacity + last.row : last.row);
    const auto flipped = [&](std::byte& byte, const char* what) {
      byte ^= std::byte{0x10};
      EXPECT_EQ(wrong().bytes, 1) << what;
      EXPECT_NE(wrong().first.find(what), std::string::npos) << wrong().first;
      byte ^= std::byte{0x10};
    };
    flipped(x[row * 12 + 11], "x of row");
    flipped(scales[row * 8 + 7], "scales of row");
    const auto changed = [&](std::int32_t& value, const char* what) {
      ++value;
      EXPECT_EQ(wrong().bytes, 4) << what;
      EXPECT_NE(wrong().first.find(what), std::string::npos) << wrong().first;
      --value;
    };
    changed(counts[2], "expert_counts[2]");
    if (layout == Layout::contiguous) changed(offsets[3], "expert_offsets[3]");
    if (layout != Layout::ranked) continue;
    changed(row_count[0], "row_count[0]");
    flipped(reinterpret_cast<std::byte*>(ids.data())[row * 8 + 1], "topk_ids of row");
    flipped(reinterpret_cast<std::byte*>(weights.data())[row * 8 + 3], "topk_weights of row");
  }
}

TEST(Workload, IsFreshFiniteAndRepeatable) {
  for (const DType dtype : {DType::fp8_e4m3, DType::bf16, DType::fp16, DType::fp32}) {
    Config config = small(Layout::padded);
    config.dtype = dtype;
    config.hidden = 500;
    config.scale_columns = 4;
    config.max_tokens = 20;
    const auto source = open_routing("uniform", 4, 2, 9);
    const Workload workload(config, 2, *source, {1, 20}, 9), again(config, 2, *source, {1, 20}, 9);
    const Workload other(config, 2, *source, {1, 20}, 10);
    const GroupStep step = workload.make(3, 1);
    EXPECT_EQ(step.x, again.make(3, 1).x);
    EXPECT_EQ(step.scales, again.make(3, 1).scales);
    EXPECT_EQ(step.ids, workload.routing(3, 1).ids);
    EXPECT_EQ(step.tokens, workload.tokens(3, 1));
    for (const GroupStep& different : {workload.make(3, 0), workload.make(4, 1), other.make(3, 1)}) {
      EXPECT_NE(std::memcmp(step.x.data(), different.x.data(), config.row_bytes()), 0);
      EXPECT_NE(std::memcmp(step.scales.data(), different.scales.data(), 16), 0);
    }
    Config plain = config;
    plain.topk = 1;
    plain.scale_columns = 0;
    plain.combine_dtype = plain.out_dtype = DType::fp32;
    GroupStep alone = step;
    alone.ids.assign(static_cast<std::size_t>(step.tokens), 2);
    alone.weights.assign(static_cast<std::size_t>(step.tokens), 1.0F);
    int negative = 0;
    for (const float value : floats(expected_combine(plain, kTable, alone, nullptr, {}))) {
      EXPECT_TRUE(std::isfinite(value) && value != 0) << value;
      negative += value < 0 ? 1 : 0;
    }
    EXPECT_NEAR(negative, step.tokens * 250, step.tokens * 50 + 50);
    std::set<int> numbers;
    for (int s = 0; s < 200; ++s) numbers.insert(workload.tokens(s, 0));
    EXPECT_EQ(*numbers.begin(), 1);
    EXPECT_EQ(*numbers.rbegin(), 20);
  }
}

}  // namespace
}  // namespace moelane::tools
