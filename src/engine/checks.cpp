#include "engine/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "engine/tensor_checks.hpp"

namespace moelane {
namespace {

using namespace tensor_checks;

MatrixView matrix(const TensorView& t) {
  return {static_cast<std::byte*>(t.data), outer_stride(t, 0), stride(t, 1)};
}

// [L, C, columns] or [N, columns], to be written or (expert rows) read at places below the capacity.
ExpertRows expert_rows(const TensorView& t, bool padded) {
  ExpertRows rows;
  rows.base = static_cast<std::byte*>(t.data);
  rows.expert_stride = padded ? outer_stride(t, 0) : 0;
  rows.row_stride = outer_stride(t, padded ? 1 : 0);
  rows.column_stride = stride(t, padded ? 2 : 1);
  return rows;
}

void not_given(const char* name, const TensorView& t, const char* layout) {
  if (t) refuse(name, "given", fmt::format("none but with the {} layout", layout));
}

}  // namespace

Input check_input(const Config& config, const DispatchInput& in, Device device) {
  Input view;
  for (const auto& [name, t] : {std::pair{"x", &in.x},
                                {"scales", &in.scales},
                                {"topk_ids", &in.topk_ids},
                                {"topk_weights", &in.topk_weights}}) {
    tensor_checks::device(name, *t, device);
  }
  basics("x", in.x, 2, "[m, hidden]");
  dtype("x", in.x, config.dtype);
  extent("x", in.x, 0, 0, in.num_tokens != nullptr ? INT32_MAX : config.max_tokens, "[m, hidden]");
  extent("x", in.x, 1, config.hidden, config.hidden, "[m, hidden]");
  unit_stride("x", in.x, 1);
  const std::int64_t m = in.x.shape[0];
  view.tokens = static_cast<std::int32_t>(m);
  if (in.num_tokens != nullptr) {
    const std::int64_t most = std::min<std::int64_t>(m, config.max_tokens);
    view.tokens_at = device == Device::cuda ? in.num_tokens : nullptr;
    view.tokens = device == Device::cuda ? static_cast<std::int32_t>(most) : *in.num_tokens;
    if (view.tokens < 0 || view.tokens > most) {
      refuse("num_tokens", fmt::format("{}", view.tokens), fmt::format("0 to {}", most));
    }
  }
  view.x = matrix(in.x);

  if (config.scale_columns > 0) {
    basics("scales", in.scales, 2, "[m, scale_columns]");
    if (size_of(in.scales.dtype) != static_cast<std::size_t>(config.scale_bytes)) {
      refuse("scales.dtype", std::string(name_of(in.scales.dtype)),
             fmt::format("a type of scale_bytes = {} bytes", config.scale_bytes));
    }
    extent("scales", in.scales, 0, m, m, "[m, scale_columns]");
    extent("scales", in.scales, 1, config.scale_columns, config.scale_columns, "[m, scale_columns]");
    view.scales = matrix(in.scales);
  } else if (in.scales) {
    refuse("scales", "given", "none, as scale_columns is 0");
  }
  view.scale_columns = config.scale_columns;
  view.scale_bytes = config.scale_bytes;

  basics("topk_ids", in.topk_ids, 2, "[m, topk]");
  if (in.topk_ids.dtype != DType::int32 && in.topk_ids.dtype != DType::int64) {
    refuse("topk_ids.dtype", std::string(name_of(in.topk_ids.dtype)), "int32 or int64");
  }
  basics("topk_weights", in.topk_weights, 2, "[m, topk]");
  dtype("topk_weights", in.topk_weights, DType::fp32);
  for (const auto& [name, t] : {std::pair{"topk_ids", &in.topk_ids}, {"topk_weights", &in.topk_weights}}) {
    aligned_to(name, *t);
    extent(name, *t, 0, m, m, "[m, topk]");
    extent(name, *t, 1, config.topk, config.topk, "[m, topk]");
  }
  view.ids = matrix(in.topk_ids);
  view.wide_ids = in.topk_ids.dtype == DType::int64;
  view.weights = matrix(in.topk_weights);
  return view;
}

Output check_output(const Config& config, int local_experts, const DispatchOutput& out, Device device) {
  for (const auto& [name, t] : {std::pair{"x", &out.x},
                                {"scales", &out.scales},
                                {"expert_counts", &out.expert_counts},
                                {"expert_offsets", &out.expert_offsets},
                                {"row_count", &out.row_count},
                                {"topk_ids", &out.topk_ids},
                                {"topk_weights", &out.topk_weights}}) {
    tensor_checks::device(name, *t, device);
  }
  const bool padded = config.layout == Layout::padded, ranked = config.layout == Layout::ranked;
  const char* dims = padded ? "[local experts, capacity, hidden]" : "[rows, hidden]";
  const int ndim = padded ? 3 : 2;
  Output view;
  view.layout = config.layout;
  view.alignment = config.alignment;
  basics("x", out.x, ndim, dims);
  dtype("x", out.x, config.dtype);
  if (padded) extent("x", out.x, 0, local_experts, INT32_MAX, dims);
  extent("x", out.x, ndim - 1, config.hidden, config.hidden, dims);
  unit_stride("x", out.x, ndim - 1);
  no_overlap("x", out.x);
  view.capacity = static_cast<std::int32_t>(out.x.shape[static_cast<std::size_t>(ndim - 2)]);
  view.x = expert_rows(out.x, padded);

  if (config.scale_columns > 0) {
    const char* scale_dims = padded ? "[local experts, capacity, scale_columns]" : "[rows, scale_columns]";
    basics("scales", out.scales, ndim, scale_dims);
    if (size_of(out.scales.dtype) != static_cast<std::size_t>(config.scale_bytes)) {
      refuse("scales.dtype", std::string(name_of(out.scales.dtype)),
             fmt::format("a type of scale_bytes = {} bytes", config.scale_bytes));
    }
    if (padded) extent("scales", out.scales, 0, local_experts, INT32_MAX, scale_dims);
    extent("scales", out.scales, ndim - 2, view.capacity, view.capacity, scale_dims);
    extent("scales", out.scales, ndim - 1, config.scale_columns, config.scale_columns, scale_dims);
    no_overlap("scales", out.scales);
    view.scales = expert_rows(out.scales, padded);
  } else if (out.scales) {
    refuse("scales", "given", "none, as scale_columns is 0");
  }
  view.scale_columns = config.scale_columns;
  view.scale_bytes = config.scale_bytes;

  vector("expert_counts", out.expert_counts, local_experts, "[local experts]");
  view.expert_counts = static_cast<std::int32_t*>(out.expert_counts.data);
  if (config.layout == Layout::contiguous) {
    vector("expert_offsets", out.expert_offsets, local_experts + 1, "[local experts + 1]");
    view.expert_offsets = static_cast<std::int32_t*>(out.expert_offsets.data);
  } else {
    not_given("expert_offsets", out.expert_offsets, "contiguous");
  }
  if (ranked) {
    vector("row_count", out.row_count, 1, "[1]");
    view.row_count = static_cast<std::int32_t*>(out.row_count.data);
    basics("topk_ids", out.topk_ids, 2, "[rows, topk]");
    dtype("topk_ids", out.topk_ids, DType::int32);
    basics("topk_weights", out.topk_weights, 2, "[rows, topk]");
    dtype("topk_weights", out.topk_weights, DType::fp32);
    for (const auto& [name, t] :
         {std::pair{"topk_ids", &out.topk_ids}, {"topk_weights", &out.topk_weights}}) {
      aligned_to(name, *t);
      extent(name, *t, 0, view.capacity, view.capacity, "[rows, topk]");
      extent(name, *t, 1, config.topk, config.topk, "[rows, topk]");
      no_overlap(name, *t);
    }
    view.ids = matrix(out.topk_ids);
    view.weights = matrix(out.topk_weights);
  } else {
    not_given("row_count", out.row_count, "ranked");
    not_given("topk_ids", out.topk_ids, "ranked");
    not_given("topk_weights", out.topk_weights, "ranked");
  }
  return view;
}

ExpertRows check_expert_rows(const Config& config, int local_experts, std::int32_t capacity,
                             const TensorView& rows, Device device) {
  tensor_checks::device("expert_rows", rows, device);
  const bool padded = config.layout == Layout::padded;
  const char* dims = padded ? "[local experts, capacity, hidden]" : "[rows, hidden]";
  const int ndim = padded ? 3 : 2;
  basics("expert_rows", rows, ndim, dims);
  dtype("expert_rows", rows, config.combine_dtype);
  if (padded) extent("expert_rows", rows, 0, local_experts, INT32_MAX, dims);
  extent("expert_rows", rows, ndim - 2, capacity, INT32_MAX, dims);
  extent("expert_rows", rows, ndim - 1, config.hidden, config.hidden, dims);
  unit_stride("expert_rows", rows, ndim - 1);
  return expert_rows(rows, padded);
}

CombineOutput check_combine_output(const Config& config, const TensorView& out, std::int32_t tokens,
                                   bool accumulate, Device device) {
  tensor_checks::device("out", out, device);
  basics("out", out, 2, "[m, hidden]");
  dtype("out", out, config.out_dtype);
  extent("out", out, 0, tokens, INT32_MAX, "[m, hidden]");
  extent("out", out, 1, config.hidden, config.hidden, "[m, hidden]");
  unit_stride("out", out, 1);
  no_overlap("out", out);
  CombineOutput view;
  view.out = matrix(out);
  view.in_type = config.partial_sums ? DType::bf16 : config.combine_dtype;
  view.out_type = config.out_dtype;
  view.hidden = config.hidden;
  view.accumulate = accumulate;
  return view;
}

void check_symmetric(const char* name, const TensorView& tensor, const std::byte* begin, std::size_t bytes) {
  const auto* data = static_cast<const std::byte*>(tensor.data);
  std::int64_t low = 0, high = static_cast<std::int64_t>(size_of(tensor.dtype));
  for (int i = 0; i < tensor.ndim; ++i) {
    const auto d = static_cast<std::size_t>(i);
    if (tensor.shape[d] == 0) return;
    const std::int64_t reach = (tensor.shape[d] - 1) * stride(tensor, i);
    (reach < 0 ? low : high) += reach;
  }
  const std::int64_t offset = data - begin;
  if (offset + low < 0 || offset + high > static_cast<std::int64_t>(bytes)) {
    throw Error(
        ErrorKind::argument,
        fmt::format("{} is outside of the lane's symmetric tensors, allowed on the direct way is what "
                    "Engine::allocate gave for this lane; or set way to put",
                    name));
  }
}

}  // namespace moelane
