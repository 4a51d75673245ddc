#include <gtest/gtest.h>

#include <array>
#include <climits>

#include "support/paths.hpp"
#include "support/player.hpp"

// What a call is given, wrong in every way: one sentence with the thing, its value and what is allowed,
// nothing sent, and the right call works afterwards. What a view can get wrong is in views.hpp's list; what
// belongs together is here.
namespace moelane::test {
namespace {

constexpr int kHidden = 33, kTopk = 4, kExperts = 16, kColumns = 2, kMost = 6, kTokens = 4;

class BadInput : public OnPath {
 protected:
  static Scene spoiled_scene() {
    Scene s = scene();
    s.ranks = 2;
    s.config.in_flight = 1;
    s.config.scale_columns = kColumns;
    s.config.max_tokens = kMost;
    s.habits.none = s.habits.nothing = 0;
    s.tokens = [](int, int) { return kTokens; };
    return s;
  }
};
MOELANE_ON_EVERY_PATH(BadInput);

// A wrong value of one view, and words of the sentence that must follow its name.
struct Spoiling {
  std::function<void(TensorView&)> spoil;
  std::vector<std::string> words;
};

// What can be wrong with any tensor of `dims` dimensions.
std::vector<Spoiling> any_tensor(int dims) {
  return {
      {[](TensorView& t) { t = {}; }, {" is not given, allowed is a tensor ["}},
      {[](TensorView& t) { t.device = Device::cuda; }, {".device is cuda, allowed is cpu"}},
      {[=](TensorView& t) { t.ndim = dims + 1; }, {".shape is [", "], allowed is ["}},
      {[=](TensorView& t) { t.ndim = dims == 1 ? 2 : dims - 1; }, {".shape is [", "], allowed is ["}},
      {[](TensorView& t) { t.ndim = 1000000; }, {".shape is [", ", ...], allowed is ["}},
      {[](TensorView& t) { t.ndim = -1; }, {".shape is [], allowed is ["}},
      {[](TensorView& t) { t.shape[0] = -1; }, {".shape is [-1", ", allowed is ["}},
      {[](TensorView& t) { t.shape[0] = std::int64_t{1} << 40; },
       {".shape is [1099511627776", ", allowed is ["}},
      {[](TensorView& t) { t.data = nullptr; }, {".data is null, allowed is the address"}},
  };
}

Spoiling dtype(DType wrong, const std::string& allowed) {
  return {[=](TensorView& t) { t.dtype = wrong; },
          {".dtype is " + std::string(name_of(wrong)) + ", allowed is ", allowed}};
}

Spoiling extent(int dim, std::int64_t wrong, const std::string& allowed) {
  return {[=](TensorView& t) { t.shape[static_cast<std::size_t>(dim)] = wrong; },
          {".shape is [", std::to_string(wrong), ", allowed is [", allowed,
           "in dimension " + std::to_string(dim)}};
}

Spoiling stride(int dim, std::int64_t wrong, const std::string& words) {
  return {[=](TensorView& t) { t.strides[static_cast<std::size_t>(dim)] = wrong; }, {".strides", words}};
}

Spoiling endless(int dim) {
  return {[=](TensorView& t) { t.strides[static_cast<std::size_t>(dim)] = INT64_MIN; },
          {".strides[" + std::to_string(dim) + "] is -9223372036854775808, allowed is -"}};
}

Spoiling misaligned() {
  return {[](TensorView& t) { t.data = static_cast<std::byte*>(t.data) + 1; },
          {".data is 0x", "allowed is a multiple"}};
}

// Expects that `call` refuses each spoiling of `view`, which it reads.
void spoil(const char* name, TensorView& view, const std::vector<Spoiling>& all,
           const std::function<void()>& call) {
  for (const Spoiling& one : all) {
    const TensorView right = view;
    one.spoil(view);
    std::vector<std::string> words = one.words;
    words[0] = name + words[0];
    try {
      require_words(refusal(ErrorKind::argument, call), words);
    } catch (const Wrong& wrong) {
      throw Wrong("spoiled " + words[0] + ": " + wrong.what());
    }
    view = right;
  }
}

template <class... More>
std::vector<Spoiling> with(std::vector<Spoiling> all, More... more) {
  (all.push_back(more), ...);
  return all;
}

// Plays two steps on two ranks; in the first, `spoiling` comes before the right call of its name.
std::string play_after(const Scene& given, const char* before,
                       const std::function<void(Engine&, Player&)>& spoiling) {
  Scene s = given;
  s.reserve();
  return complaints(play(Home::threads, s.ranks, 20, [&](World world) {
    Engine engine(std::move(world), s.config, Placement::table(s.table(0), s.ranks));
    Player player(engine, s, 0);
    player.begin(0);
    const auto here = [&](const char* call) {
      if (std::string(call) == before) spoiling(engine, player);
    };
    const bool split = s.calls_of(0, true) == Calls::split;
    here("dispatch");
    split ? player.dispatch_send() : player.dispatch();
    if (split) {
      here("dispatch_recv");
      player.dispatch_recv();
    }
    const bool halves = s.calls_of(0, false) == Calls::split;
    here("combine");
    halves ? player.combine_send() : player.combine();
    if (halves) {
      here("combine_recv");
      player.combine_recv();
    }
    player.play(1);
  }));
}

TEST_P(BadInput, Tokens) {
  const auto part = [](Engine& engine, Player& player) {
    DispatchInput in = player.input();
    const auto call = [&] {
      const bool split = engine.config().way == Way::put || !engine.direct();
      split ? engine.dispatch_send(0, in) : engine.dispatch(0, in, player.output());
    };
    spoil("x", in.x,
          with(any_tensor(2), dtype(DType::fp32, "bf16"), dtype(DType::int32, "bf16"),
               extent(0, kMost + 1, "0 to 6"), extent(1, kHidden - 1, "33"), extent(1, kHidden + 1, "33"),
               stride(1, 2, "[1] is 2, allowed is 1"), stride(1, -1, "[1] is -1, allowed is 1"), endless(0)),
          call);
    spoil("scales", in.scales,
          with(any_tensor(2), dtype(DType::fp16, "a type of scale_bytes = 4"), extent(0, kTokens - 1, "4"),
               extent(0, kTokens + 1, "4"), extent(1, kColumns + 1, "2"), extent(1, 1, "2"), endless(0),
               endless(1)),
          call);
    spoil("topk_ids", in.topk_ids,
          with(any_tensor(2), dtype(DType::fp32, "int32 or int64"), dtype(DType::uint8, "int32 or int64"),
               extent(0, kTokens - 1, "4"), extent(1, kTopk - 1, "4"), extent(1, kTopk + 1, "4"),
               misaligned(), endless(0), endless(1)),
          call);
    spoil("topk_weights", in.topk_weights,
          with(any_tensor(2), dtype(DType::bf16, "fp32"), extent(0, kTokens + 1, "4"),
               extent(1, kTopk + 1, "4"), misaligned(), endless(1)),
          call);
    for (const std::int32_t wrong : {-1, kTokens + 1, INT_MIN, INT_MAX}) {
      in.num_tokens = &wrong;
      require_words(refusal(ErrorKind::argument, call),
                    {"num_tokens is " + std::to_string(wrong) + ", allowed is 0 to 4"});
    }
    // The tensors may then be larger than max_tokens, but the number may not.
    std::vector<std::byte> many(40 * kHidden * 2);
    std::vector<std::int32_t> ids(40 * kTopk);
    std::vector<float> weights(40 * kTopk), scales(40 * kColumns);
    in.x = TensorView::dense(many.data(), DType::bf16, {40, kHidden});
    in.scales = TensorView::dense(scales.data(), DType::fp32, {40, kColumns});
    in.topk_ids = TensorView::dense(ids.data(), DType::int32, {40, kTopk});
    in.topk_weights = TensorView::dense(weights.data(), DType::fp32, {40, kTopk});
    const std::int32_t seven = kMost + 1;
    in.num_tokens = &seven;
    require_words(refusal(ErrorKind::argument, call), {"num_tokens is 7, allowed is 0 to 6"});
  };
  EXPECT_EQ(play_after(spoiled_scene(), "dispatch", part), "");
}

TEST_P(BadInput, ExpertIds) {
  for (const bool wide : {false, true}) {
    Scene s = spoiled_scene();
    s.wide_ids = wide;
    const auto part = [&](Engine& engine, Player& player) {
      DispatchInput in = player.input();
      const auto call = [&] {
        engine.direct() ? engine.dispatch(0, in, player.output()) : engine.dispatch_send(0, in);
      };
      std::array<std::int64_t, kTokens * kTopk> many{};
      std::array<std::int32_t, kTokens * kTopk> few{};
      in.topk_ids = wide ? TensorView::dense(many.data(), DType::int64, {kTokens, kTopk})
                         : TensorView::dense(few.data(), DType::int32, {kTokens, kTopk});
      std::vector<std::int64_t> wrong{-2, kExperts, INT_MIN, INT_MAX};
      if (wide)
        wrong.insert(wrong.end(), {INT64_MIN, INT64_MAX, std::int64_t{1} << 32, (std::int64_t{1} << 32) + 3});
      for (const std::int64_t id : wrong) {
        for (const int at : {0, 6, 15}) {
          many.fill(-1);
          few.fill(kExperts - 1);
          many[static_cast<std::size_t>(at)] = id;
          few[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(id);
          const std::string place = std::to_string(at / kTopk) + ", " + std::to_string(at % kTopk);
          require_words(refusal(ErrorKind::argument, call),
                        {"topk_ids[" + place + "] is " + std::to_string(id) + ", allowed are -1 to 15"});
        }
      }
    };
    EXPECT_EQ(play_after(s, "dispatch", part), "");
  }
}

TEST_P(BadInput, ScalesThatNobodyWants) {
  Scene s = spoiled_scene();
  s.config.scale_columns = 0;
  const auto part = [](Engine& engine, Player& player) {
    float scales[kTokens] = {};
    DispatchInput in = player.input();
    in.scales = TensorView::dense(scales, DType::fp32, {kTokens, 1});
    DispatchOutput out = player.output();
    const auto call = [&] { engine.direct() ? engine.dispatch(0, in, out) : engine.dispatch_send(0, in); };
    require_words(refusal(ErrorKind::argument, call),
                  {"scales is given, allowed is none, as scale_columns is 0"});
    in.scales = {};
    out.scales = TensorView::dense(scales, DType::fp32, {kTokens, 1});
    const auto whole = [&] { engine.dispatch(0, in, out); };
    require_words(refusal(ErrorKind::argument, whole),
                  {"scales is given, allowed is none, as scale_columns is 0"});
  };
  EXPECT_EQ(play_after(s, "dispatch", part), "");
}

TEST_P(BadInput, Outputs) {
  Scene s = spoiled_scene();
  const bool split = s.calls_of(0, true) == Calls::split;
  const auto part = [&](Engine& engine, Player& player) {
    const Layout layout = engine.config().layout;
    const bool padded = layout == Layout::padded, ranked = layout == Layout::ranked;
    const int dims = padded ? 3 : 2, rows = dims - 2;
    DispatchOutput out = player.output();
    const auto call = [&] { split ? engine.dispatch_recv(0, out) : engine.dispatch(0, player.input(), out); };
    const auto capacity = out.x.shape[static_cast<std::size_t>(rows)];
    const std::string n = std::to_string(capacity);
    auto x = with(any_tensor(dims), dtype(DType::fp16, "bf16"), extent(dims - 1, kHidden - 1, "33"),
                  stride(dims - 1, 2, "is 2, allowed is 1"),
                  stride(rows, kHidden - 1, "no two elements share memory"),
                  stride(rows, 0, "no two elements share memory"), endless(rows));
    auto scales = with(any_tensor(dims), dtype(DType::uint8, "a type of scale_bytes = 4"),
                       extent(dims - 1, kColumns + 1, "2"), extent(rows, capacity - 1, n),
                       extent(rows, capacity + 1, n), stride(rows, 1, "no two elements share memory"),
                       stride(dims - 1, 0, "no two elements share memory"), endless(dims - 1));
    if (padded) {
      x = with(x, extent(0, 7, "at least 8"), stride(0, kHidden, "no two elements share memory"), endless(0));
      scales = with(scales, extent(0, 7, "at least 8"), stride(0, 2, "no two elements share memory"));
    }
    spoil("x", out.x, x, call);
    spoil("scales", out.scales, scales, call);
    const auto vector = [&](const char* name, TensorView& t, std::int64_t least) {
      auto all = with(any_tensor(1), dtype(DType::int64, "int32"), dtype(DType::fp32, "int32"), misaligned(),
                      extent(0, least - 1, "at least " + std::to_string(least)));
      if (least > 1) all = with(all, stride(0, 2, "[0] is 2, allowed is 1"), endless(0));
      spoil(name, t, all, call);
    };
    vector("expert_counts", out.expert_counts, 8);
    std::int32_t some[9] = {};
    const auto unwanted = [&](const char* name, TensorView& t, const std::string& wanted) {
      t = TensorView::dense(some, DType::int32, {9});
      require_words(refusal(ErrorKind::argument, call),
                    {name, " is given, allowed is none but with the " + wanted});
      t = {};
    };
    if (layout == Layout::contiguous) {
      vector("expert_offsets", out.expert_offsets, 9);
    } else {
      unwanted("expert_offsets", out.expert_offsets, "contiguous layout");
    }
    if (!ranked) {
      unwanted("row_count", out.row_count, "ranked layout");
      unwanted("topk_ids", out.topk_ids, "ranked layout");
      unwanted("topk_weights", out.topk_weights, "ranked layout");
      return;
    }
    vector("row_count", out.row_count, 1);
    const auto routing =
        with(any_tensor(2), misaligned(), extent(0, capacity - 1, n), extent(1, kTopk - 1, "4"),
             stride(0, 1, "no two elements share memory"), endless(0));
    spoil("topk_ids", out.topk_ids, with(routing, dtype(DType::int64, "int32")), call);
    spoil("topk_weights", out.topk_weights, with(routing, dtype(DType::fp16, "fp32")), call);
  };
  EXPECT_EQ(play_after(s, split ? "dispatch_recv" : "dispatch", part), "");
}

TEST_P(BadInput, ExpertRowsAndCombinedOutput) {
  Scene s = spoiled_scene();
  const bool split = s.calls_of(0, false) == Calls::split;
  std::vector<std::uint16_t> memory(kTokens * kHidden * 4);
  const auto part = [&](Engine& engine, Player& player) {
    const bool padded = engine.config().layout == Layout::padded;
    const int dims = padded ? 3 : 2, row = dims - 2;
    TensorView rows = player.rows();
    const std::int64_t capacity = rows.shape[static_cast<std::size_t>(row)];
    TensorView out = TensorView::dense(memory.data(), DType::bf16, {kTokens, kHidden});
    const auto call = [&] { split ? engine.combine_send(0, rows) : engine.combine(0, rows, out); };
    auto all = with(any_tensor(dims), dtype(DType::fp32, "bf16"), dtype(DType::fp8_e4m3, "bf16"),
                    extent(dims - 1, kHidden + 1, "33"), extent(row, capacity - 1, "at least"),
                    stride(dims - 1, 2, "is 2, allowed is 1"), endless(row));
    if (padded) all = with(all, extent(0, 7, "at least 8"));
    spoil("expert_rows", rows, all, call);
    if (split) return;
    spoil("out", out,
          with(any_tensor(2), dtype(DType::fp32, "bf16"), extent(0, kTokens - 1, "at least 4"),
               extent(1, kHidden - 1, "33"), stride(1, 2, "[1] is 2, allowed is 1"),
               stride(0, kHidden - 1, "no two elements share memory"), endless(0)),
          call);
  };
  EXPECT_EQ(play_after(s, "combine", part), "");
  if (!split) return;
  const auto output = [&](Engine& engine, Player&) {
    TensorView out = TensorView::dense(memory.data(), DType::bf16, {kTokens, kHidden});
    spoil("out", out,
          with(any_tensor(2), dtype(DType::fp16, "bf16"), extent(0, kTokens - 1, "at least 4"),
               extent(1, kHidden + 1, "33"), stride(0, 0, "no two elements share memory")),
          [&] { engine.combine_recv(0, out); });
  };
  EXPECT_EQ(play_after(s, "combine_recv", output), "");
}

TEST_P(BadInput, TensorsThatAreNotSymmetric) {
  Scene s = spoiled_scene();
  s.config.in_flight = 2;
  s.calls = Calls::whole;
  s.reserve();
  const auto part = [&](World world) {
    Engine engine(std::move(world), s.config);
    if (!engine.direct()) return;
    Player player(engine, s, 0), other(engine, s, 1);
    player.begin(0);
    DispatchOutput out = player.output();
    const auto dispatch = [&] { engine.dispatch(0, player.input(), out); };
    const auto moved = [&](const char* name, TensorView& view, const TensorView& elsewhere) {
      const TensorView right = view;
      for (void* data :
           {elsewhere.data, static_cast<void*>(static_cast<std::byte*>(right.data) + (1 << 28))}) {
        view.data = data;
        require_words(refusal(ErrorKind::argument, dispatch),
                      {name, " is outside of the lane's symmetric tensors", "allocate"});
      }
      view = right;
    };
    moved("x", out.x, other.output().x);
    moved("scales", out.scales, other.output().scales);
    if (s.config.layout == Layout::ranked) {
      moved("topk_ids", out.topk_ids, other.output().topk_ids);
      moved("topk_weights", out.topk_weights, other.output().topk_weights);
    }
    player.dispatch();
    std::vector<std::uint16_t> memory(kTokens * kHidden);
    const TensorView combined = TensorView::dense(memory.data(), DType::bf16, {kTokens, kHidden});
    require_words(refusal(ErrorKind::argument, [&] { engine.combine(0, other.rows(), combined); }),
                  {"expert_rows is outside of the lane's symmetric tensors"});
    player.combine();
    player.play(1);
    other.play(2);
  };
  EXPECT_EQ(complaints(play(Home::threads, 2, 20, part)), "");
}

}  // namespace
}  // namespace moelane::test
