#include <gtest/gtest.h>

#include <array>
#include <climits>

#include "support/spoil.hpp"

// Inputs of dispatch that are refused: one sentence with the thing, its value and what is allowed, nothing
// sent, and the right call works afterwards.
namespace moelane::test {
namespace {

class BadInput : public OnPath {};
MOELANE_ON_EVERY_PATH(BadInput);

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
    if (on_gpu()) return;  // which reads num_tokens in the kernel: tests/gpu/errors_test.cpp
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
  EXPECT_EQ(play_after(spoiled_scene(scene()), "dispatch", part), "");
}

TEST_P(BadInput, ExpertIds) {
  MOELANE_SKIP_ON_GPU("ids are read in the kernel, tests/gpu/errors_test.cpp");
  for (const bool wide : {false, true}) {
    Scene s = spoiled_scene(scene());
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
  Scene s = spoiled_scene(scene());
  s.config.scale_columns = 0;
  const auto part = [](Engine& engine, Player& player) {
    float scales[kTokens] = {};
    DispatchInput in = player.input();
    in.scales = TensorView::dense(scales, DType::fp32, {kTokens, 1}, engine.device());
    DispatchOutput out = player.output();
    const auto call = [&] { engine.direct() ? engine.dispatch(0, in, out) : engine.dispatch_send(0, in); };
    require_words(refusal(ErrorKind::argument, call),
                  {"scales is given, allowed is none, as scale_columns is 0"});
    in.scales = {};
    out.scales = TensorView::dense(scales, DType::fp32, {kTokens, 1}, engine.device());
    const auto whole = [&] { engine.dispatch(0, in, out); };
    require_words(refusal(ErrorKind::argument, whole),
                  {"scales is given, allowed is none, as scale_columns is 0"});
  };
  EXPECT_EQ(play_after(s, "dispatch", part), "");
}

}  // namespace
}  // namespace moelane::test
