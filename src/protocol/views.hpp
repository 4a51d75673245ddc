#pragma once

#include <cstddef>
#include <cstdint>

#include "core/hd.hpp"
#include "moelane/config.hpp"

// The caller's tensors as the bodies see them: checked, with strides in bytes, trivially copyable.
namespace moelane {

struct MatrixView {
  std::byte* base = nullptr;
  std::int64_t row_stride = 0, column_stride = 0;  // bytes
  MOELANE_HD std::byte* at(std::int64_t row, std::int64_t column = 0) const {
    return base + row * row_stride + column * column_stride;
  }
};

// Rows of one rank's experts: row `row` of local expert `local`. Without an expert dimension expert_stride is
// 0 and rows are numbered through.
struct ExpertRows {
  std::byte* base = nullptr;
  std::int64_t expert_stride = 0, row_stride = 0, column_stride = 0;  // bytes
  MOELANE_HD std::byte* at(std::int32_t local, std::int32_t row) const {
    return base + local * expert_stride + row * row_stride;
  }
};

struct Input {
  std::int32_t tokens = 0;
  const std::int32_t* tokens_at = nullptr;  // GPU: where the number is, which is at most `tokens`
  MatrixView x, scales, ids, weights;
  bool wide_ids = false;  // int64
  std::int32_t scale_columns = 0, scale_bytes = 0;
};

struct Output {
  Layout layout = Layout::padded;
  std::int32_t alignment = 1;
  std::int32_t capacity = 0;  // rows: of each expert (padded) or in all
  std::int32_t scale_columns = 0, scale_bytes = 0;
  ExpertRows x, scales;
  MatrixView ids, weights;  // ranked: int32, fp32
  std::int32_t* expert_counts = nullptr;
  std::int32_t* expert_offsets = nullptr;
  std::int32_t* row_count = nullptr;
};

struct CombineOutput {
  MatrixView out;
  DType in_type = DType::bf16, out_type = DType::bf16;
  std::int64_t hidden = 0;
  bool accumulate = false;
};

// Which rank holds which expert, as plain arrays; see Placement.
struct PlacementView {
  const std::int32_t* rank_of = nullptr;   // [experts]
  const std::int32_t* local_of = nullptr;  // [experts]
  const std::int32_t* first = nullptr;     // [ranks + 1]
  const std::int32_t* by_rank = nullptr;   // [experts], experts of rank r at first[r]
  std::uint64_t fingerprint = 0;
  MOELANE_HD std::int32_t local_experts(int rank) const { return first[rank + 1] - first[rank]; }
};

}  // namespace moelane
