#include <gtest/gtest.h>

#include "support/spoil.hpp"

// Outputs and expert rows that are refused, as bad_input_test.cpp has it for inputs.
namespace moelane::test {
namespace {

class BadOutput : public OnPath {};
MOELANE_ON_EVERY_PATH(BadOutput);

TEST_P(BadOutput, Outputs) {
  Scene s = spoiled_scene(scene());
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
      t = TensorView::dense(some, DType::int32, {9}, engine.device());
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

TEST_P(BadOutput, ExpertRowsAndCombinedOutput) {
  Scene s = spoiled_scene(scene());
  const bool split = s.calls_of(0, false) == Calls::split;
  std::vector<std::uint16_t> memory(kTokens * kHidden * 4);
  const auto part = [&](Engine& engine, Player& player) {
    const bool padded = engine.config().layout == Layout::padded;
    const int dims = padded ? 3 : 2, row = dims - 2;
    TensorView rows = player.rows();
    const std::int64_t capacity = rows.shape[static_cast<std::size_t>(row)];
    TensorView out = TensorView::dense(memory.data(), DType::bf16, {kTokens, kHidden}, engine.device());
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
    TensorView out = TensorView::dense(memory.data(), DType::bf16, {kTokens, kHidden}, engine.device());
    spoil("out", out,
          with(any_tensor(2), dtype(DType::fp16, "bf16"), extent(0, kTokens - 1, "at least 4"),
               extent(1, kHidden + 1, "33"), stride(0, 0, "no two elements share memory")),
          [&] { engine.combine_recv(0, out); });
  };
  EXPECT_EQ(play_after(s, "combine_recv", output), "");
}

TEST_P(BadOutput, TensorsThatAreNotSymmetric) {
  Scene s = spoiled_scene(scene());
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
    const TensorView combined =
        TensorView::dense(memory.data(), DType::bf16, {kTokens, kHidden}, engine.device());
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
