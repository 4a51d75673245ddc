#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "engine/checks.hpp"
#include "moelane/error.hpp"

// The checks of tensors by themselves; tests/protocol/bad_*.cpp has what the calls say.
namespace moelane {
namespace {

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return "";
}

Config config_of(Layout layout) {
  Config config;
  config.experts = 4;
  config.topk = 2;
  config.hidden = 3;
  config.max_tokens = 5;
  config.layout = layout;
  return config;
}

std::int32_t numbers[64];
std::uint16_t rows[4096];

TensorView strided(std::initializer_list<std::int64_t> shape, std::initializer_list<std::int64_t> strides) {
  TensorView view = TensorView::dense(rows + 2048, DType::bf16, shape);
  std::size_t d = 0;
  for (const std::int64_t stride : strides) view.strides[d++] = stride;
  return view;
}

DispatchOutput output_of(const TensorView& x) {
  DispatchOutput out;
  out.x = x;
  out.expert_counts = TensorView::dense(numbers, DType::int32, {2});
  return out;
}

// Whether two elements of an output share memory is found by the strides alone: never missed, and said of no
// plain tensor. (Strides that interleave without sharing, such as 2 and 3 over two elements each, are refused
// too.)
TEST(TensorChecks, ElementsThatShareMemory) {
  int refused = 0, accepted = 0;
  const auto look = [&](std::int64_t experts, std::int64_t capacity, std::int64_t a, std::int64_t b) {
    std::set<std::int64_t> seen;
    bool shared = false;
    for (std::int64_t e = 0; e < experts; ++e) {
      for (std::int64_t row = 0; row < capacity; ++row) {
        for (std::int64_t j = 0; j < 3; ++j) shared = shared || !seen.insert(e * a + row * b + j).second;
      }
    }
    const std::string sentence = refusal([&] {
      check_output(config_of(Layout::padded), 2, output_of(strided({experts, capacity, 3}, {a, b, 1})));
    });
    if (shared) {
      ASSERT_EQ(sentence.find("x.strides is "), 0U) << experts << " experts, capacity " << capacity
                                                    << ", strides " << a << ", " << b << ": " << sentence;
    }
    ++(sentence.empty() ? accepted : refused);
  };
  for (std::int64_t a = -20; a <= 20; ++a) {
    for (std::int64_t b = -20; b <= 20; ++b) {
      for (std::int64_t capacity = 0; capacity < 4; ++capacity) {
        look(2, capacity, a, b);
        look(3, capacity, a, b);
      }
    }
  }
  EXPECT_GT(accepted, 5000);
  EXPECT_GT(refused, 1000);
  const auto good = [](const TensorView& x) {
    return refusal([&] { check_output(config_of(Layout::padded), 2, output_of(x)); });
  };
  EXPECT_EQ(good(strided({2, 4, 3}, {12, 3, 1})), "");
  EXPECT_EQ(good(strided({2, 4, 3}, {3, 6, 1})), "");     // experts between each other's rows
  EXPECT_EQ(good(strided({2, 4, 3}, {-12, 3, 1})), "");   // backwards
  EXPECT_EQ(good(strided({2, 4, 3}, {100, -7, 1})), "");  // with gaps
}

TEST(TensorChecks, ViewsInBytes) {
  const ExpertRows view = check_expert_rows(config_of(Layout::padded), 2, 4, strided({2, 4, 3}, {20, -5, 1}));
  EXPECT_EQ(view.expert_stride, 40);
  EXPECT_EQ(view.row_stride, -10);
  EXPECT_EQ(view.at(1, 2), reinterpret_cast<std::byte*>(rows + 2048) + 20);
  const ExpertRows flat = check_expert_rows(config_of(Layout::contiguous), 2, 4, strided({4, 3}, {20, 1}));
  EXPECT_EQ(flat.at(1, 2), reinterpret_cast<std::byte*>(rows + 2048) + 80);  // numbered through
}

// A dimension of one element has no stride that matters; dimensions of none need no memory.
TEST(TensorChecks, StridesThatDoNotMatter) {
  Config config = config_of(Layout::padded);
  config.hidden = 1;
  EXPECT_EQ(refusal([&] { check_output(config, 1, output_of(strided({1, 1, 1}, {77, -3, 9}))); }), "");
  TensorView nothing = TensorView::dense(nullptr, DType::bf16, {0, 4, 3});
  DispatchOutput out = output_of(nothing);
  out.expert_counts = TensorView::dense(nullptr, DType::int32, {0});
  EXPECT_EQ(refusal([&] { check_output(config_of(Layout::padded), 0, out); }), "");
  DispatchInput in;
  in.x = TensorView::dense(nullptr, DType::bf16, {0, 3});
  in.topk_ids = TensorView::dense(nullptr, DType::int64, {0, 2});
  in.topk_weights = TensorView::dense(nullptr, DType::fp32, {0, 2});
  EXPECT_EQ(check_input(config_of(Layout::padded), in).tokens, 0);
  EXPECT_EQ(refusal([&] {
              check_combine_output(config_of(Layout::padded), TensorView::dense(nullptr, DType::bf16, {0, 3}),
                                   0, true);
            }),
            "");
}

TEST(TensorChecks, WithinTheSymmetricTensors) {
  std::byte memory[1000]{};
  const auto within = [&](std::ptrdiff_t begin, std::initializer_list<std::int64_t> shape,
                          std::initializer_list<std::int64_t> strides) {
    TensorView view = TensorView::dense(memory + 100 + begin, DType::fp32, shape);
    std::size_t d = 0;
    for (const std::int64_t stride : strides) view.strides[d++] = stride;
    return refusal([&] { check_symmetric("x", view, memory + 100, 800); }).empty();
  };
  EXPECT_TRUE(within(0, {200}, {1}));
  EXPECT_FALSE(within(0, {201}, {1}));
  EXPECT_FALSE(within(1, {200}, {1}));
  EXPECT_FALSE(within(-1, {2}, {1}));
  EXPECT_TRUE(within(0, {2, 100}, {100, 1}));
  EXPECT_FALSE(within(0, {2, 100}, {101, 1}));
  EXPECT_TRUE(within(396, {2, 100}, {100, -1}));
  EXPECT_FALSE(within(392, {2, 100}, {100, -1}));
  EXPECT_TRUE(within(-50, {0, 100}, {100, 1}));  // nothing is written
}

// What the caller may see as a tensor: `dense` gives row-major strides, for any number of dimensions.
TEST(TensorView, Dense) {
  const TensorView view = TensorView::dense(rows, DType::bf16, {2, 3, 4});
  EXPECT_EQ(view.ndim, 3);
  EXPECT_EQ(view.strides[0], 12);
  EXPECT_EQ(view.strides[1], 4);
  EXPECT_EQ(view.strides[2], 1);
  EXPECT_TRUE(static_cast<bool>(view));
  EXPECT_FALSE(static_cast<bool>(TensorView{}));
  EXPECT_EQ(TensorView::dense(rows, DType::bf16, {1, 2, 3, 4, 5}).ndim, 4);
}

}  // namespace
}  // namespace moelane
