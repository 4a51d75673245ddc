#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/expected_dispatch.hpp"

namespace moelane::tools {

// The number of bytes that differ and, for people, where the first difference is.
struct Difference {
  std::int64_t bytes = 0;
  std::string first;
};

// What a rank has after dispatch, as plain pointers and byte strides.
struct DispatchedView {
  const std::byte* x = nullptr;
  std::int64_t expert_stride = 0, row_stride = 0;
  const std::byte* scales = nullptr;
  std::int64_t scale_expert_stride = 0, scale_row_stride = 0, scale_column_stride = 0;
  const std::int32_t *counts = nullptr, *offsets = nullptr, *row_count = nullptr;
  const std::int32_t* ids = nullptr;  // ranked, dense [rows, topk]
  const float* weights = nullptr;
};

// Compares every byte that a rank got with what it should have got.
Difference compare_dispatch(const Config& config, std::span<const std::int32_t> rank_of, int rank,
                            const std::vector<GroupStep>& groups, const ExpectedDispatch& expected,
                            const DispatchedView& got);

}  // namespace moelane::tools
