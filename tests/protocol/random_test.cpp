#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>

#include "support/paths.hpp"
#include "support/player.hpp"

// Anything that is allowed, together: several steps of a random scene, every byte compared.
namespace moelane::test {
namespace {

int pick(const char* what, int low, int high) { return *rc::gen::inRange(low, high + 1).as(what); }
bool flip(const char* what) { return *rc::gen::arbitrary<bool>().as(what); }

template <class T>
T one_of(const char* what, std::initializer_list<T> all) {
  const auto which = static_cast<std::size_t>(pick(what, 0, static_cast<int>(all.size()) - 1));
  return *(all.begin() + which);
}

Scene any_scene() {
  const auto layout = one_of("layout", {Layout::padded, Layout::contiguous, Layout::ranked});
  const Path path = paths()[static_cast<std::size_t>(pick("path", 0, static_cast<int>(paths().size()) - 1))];
  Scene s = scene_on(path, layout);
  Config& c = s.config;
  if (layout == Layout::ranked) c.partial_sums = false;
  c.tp_size = one_of("tp", {1, 1, 2, 3, 4});
  s.ranks = c.tp_size * pick("groups", 1, c.tp_size > 2 ? 2 : 4);
  c.experts = pick("experts", 1, 20);
  c.topk = one_of("topk", {1, 2, 3, 4, 6, 8, 32});
  c.hidden = pick("hidden", 1, 70);
  c.max_tokens = pick("max_tokens", 1, 9);
  c.in_flight = pick("in_flight", 1, 3);
  c.dtype = one_of("dtype", {DType::fp8_e4m3, DType::bf16, DType::fp16, DType::fp32});
  c.combine_dtype = one_of("combine_dtype", {DType::bf16, DType::fp16, DType::fp32});
  c.out_dtype = one_of("out_dtype", {DType::bf16, DType::fp16, DType::fp32});
  c.scale_columns = pick("scale_columns", 0, 4);
  c.scale_bytes = one_of("scale_bytes", {1, 2, 4, 4, 8});
  if (layout == Layout::contiguous) c.alignment = one_of("alignment", {1, 2, 7, 16});
  s.seed = static_cast<std::uint64_t>(pick("seed", 0, 1 << 30));
  s.habits.none = one_of("none", {0.0, 0.1, 0.7});
  s.habits.nothing = one_of("nothing", {0.0, 0.2});
  s.habits.hot = one_of("hot", {0.0, 0.3, 0.9});
  s.habits.hot_expert = pick("hot_expert", 0, c.experts - 1);
  if (flip("little room")) {
    const int rows = pick("capacity", 0, 30);
    const bool uneven = c.way == Way::put && flip("uneven");
    s.capacity = [=](int rank) { return uneven ? rows / (rank + 1) : rows; };
  }
  for (int n = pick("tables", 0, 3); n > 0; --n) {
    s.tables.push_back(*rc::gen::container<std::vector<std::int32_t>>(
                            static_cast<std::size_t>(c.experts), rc::gen::inRange<std::int32_t>(0, s.ranks))
                            .as("table"));
  }
  s.exact_experts = s.tables.size() < 2 && flip("exact experts");
  s.accumulate = flip("accumulate");
  s.special_values = flip("special values");
  s.wide_ids = flip("wide ids");
  s.num_tokens = flip("num_tokens");
  s.strides = one_of("strides", {Strides::dense, Strides::odd, Strides::crossed});
  s.scale_strides = one_of("scale strides", {Strides::dense, Strides::odd, Strides::crossed});
  return s;
}

TEST(Any, SceneGoesWell) {
  // A scene takes a millisecond (on GPU ranks some dozen); whoever wants more says so.
  setenv("RC_PARAMS", on_gpu() ? "max_success=150" : "max_success=1000", 0);
  const bool held = rc::check("every byte is right", [] {
    const Scene scene = any_scene();
    const int steps = pick("steps", 1, 12);
    const std::string wrong = run(scene, steps);
    RC_LOG() << wrong << scene.config.canonical() << "ranks=" << scene.ranks << "\n";
    RC_ASSERT(wrong.empty());
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace moelane::test
