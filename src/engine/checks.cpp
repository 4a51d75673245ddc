#include "engine/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace moelane {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& value, const std::string& allowed) {
  throw Error(ErrorKind::argument, fmt::format("{} is {}, allowed is {}", what, value, allowed));
}

std::string shape_text(const TensorView& t) {
  std::string out = "[";
  for (int i = 0; i < std::min(t.ndim, 4); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ", ", t.shape[static_cast<std::size_t>(i)]);
  }
  return out + (t.ndim > 4 ? ", ...]" : "]");
}

// Given, on the CPU, of the right number of dimensions and dtype.
void basics(const char* name, const TensorView& t, int ndim, const char* dims) {
  if (!t) refuse(name, "not given", fmt::format("a tensor {}", dims));
  if (t.device != Device::cpu) refuse(fmt::format("{}.device", name), "cuda", "cpu in a world of CPU ranks");
  if (t.ndim != ndim) refuse(fmt::format("{}.shape", name), shape_text(t), dims);
  bool empty = false;
  for (int i = 0; i < ndim; ++i) {
    const std::int64_t extent = t.shape[static_cast<std::size_t>(i)];
    if (extent < 0 || extent > INT32_MAX) refuse(fmt::format("{}.shape", name), shape_text(t), dims);
    empty = empty || extent == 0;
  }
  if (t.data == nullptr && !empty)
    refuse(fmt::format("{}.data", name), "null", "the address of its elements");
  // No sum of offsets below overflows.
  constexpr std::int64_t kReach = std::int64_t{1} << 42;
  for (std::size_t i = 0; i < static_cast<std::size_t>(ndim); ++i) {
    const std::int64_t most = t.shape[i] > 1 ? kReach / (t.shape[i] - 1) : INT64_MAX;
    if (t.shape[i] > 1 && (t.strides[i] > most || t.strides[i] < -most)) {
      refuse(fmt::format("{}.strides[{}]", name, i), fmt::format("{}", t.strides[i]),
             fmt::format("-{0} to {0} over {1} elements", most, t.shape[i]));
    }
  }
}

void dtype(const char* name, const TensorView& t, DType wanted) {
  if (t.dtype != wanted) {
    refuse(fmt::format("{}.dtype", name), std::string(name_of(t.dtype)), std::string(name_of(wanted)));
  }
}

void aligned_to(const char* name, const TensorView& t) {
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  if (address % size_of(t.dtype) != 0) {
    refuse(fmt::format("{}.data", name), fmt::format("{:#x}", address),
           fmt::format("a multiple of the {} bytes of its elements", size_of(t.dtype)));
  }
}

void extent(const char* name, const TensorView& t, int dim, std::int64_t low, std::int64_t high,
            const char* dims) {
  const std::int64_t value = t.shape[static_cast<std::size_t>(dim)];
  if (value >= low && value <= high) return;
  const std::string range = low == high         ? fmt::format("{}", low)
                            : high == INT32_MAX ? fmt::format("at least {}", low)
                                                : fmt::format("{} to {}", low, high);
  throw Error(ErrorKind::argument, fmt::format("{}.shape is {}, allowed is {} with {} in dimension {}", name,
                                               shape_text(t), dims, range, dim));
}

// The stride of `dim` in bytes; a dimension of one element has none that matters.
std::int64_t stride(const TensorView& t, int dim) {
  const auto d = static_cast<std::size_t>(dim);
  return t.shape[d] <= 1 ? static_cast<std::int64_t>(size_of(t.dtype))
                         : t.strides[d] * static_cast<std::int64_t>(size_of(t.dtype));
}

void unit_stride(const char* name, const TensorView& t, int dim) {
  if (stride(t, dim) != static_cast<std::int64_t>(size_of(t.dtype))) {
    refuse(fmt::format("{}.strides[{}]", name, dim),
           fmt::format("{}", t.strides[static_cast<std::size_t>(dim)]),
           "1: the elements of a row lie side by side");
  }
}

// No two elements of an output share memory: sorted by stride, each dimension steps over all smaller ones.
void no_overlap(const char* name, const TensorView& t) {
  std::array<std::pair<std::int64_t, std::int64_t>, 4> steps{};
  std::size_t n = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.ndim); ++i) {
    if (t.shape[i] == 0) return;
    if (t.shape[i] > 1) steps[n++] = {std::abs(t.strides[i]), t.shape[i]};
  }
  for (std::size_t i = 1; i < n; ++i) {
    for (std::size_t j = i; j > 0 && steps[j] < steps[j - 1]; --j) std::swap(steps[j], steps[j - 1]);
  }
  std::int64_t reach = 1;
  for (std::size_t i = 0; i < n; ++i) {
    if (steps[i].first < reach) {
      refuse(fmt::format("{}.strides", name),
             fmt::format("{} over {} elements that lie there already", steps[i].first, reach),
             "strides by which no two elements share memory");
    }
    reach += steps[i].first * (steps[i].second - 1);
  }
}

MatrixView matrix(const TensorView& t) {
  return {static_cast<std::byte*>(t.data), stride(t, 0), stride(t, 1)};
}

// [L, C, columns] or [N, columns], to be written or (expert rows) read at places below the capacity.
ExpertRows expert_rows(const TensorView& t, bool padded) {
  ExpertRows rows;
  rows.base = static_cast<std::byte*>(t.data);
  rows.expert_stride = padded ? stride(t, 0) : 0;
  rows.row_stride = stride(t, padded ? 1 : 0);
  rows.column_stride = stride(t, padded ? 2 : 1);
  return rows;
}

void not_given(const char* name, const TensorView& t, const char* layout) {
  if (t) refuse(name, "given", fmt::format("none but with the {} layout", layout));
}

void vector(const char* name, const TensorView& t, std::int64_t least, const char* dims) {
  basics(name, t, 1, dims);
  dtype(name, t, DType::int32);
  aligned_to(name, t);
  extent(name, t, 0, least, INT32_MAX, dims);
  unit_stride(name, t, 0);
}

}  // namespace

Input check_input(const Config& config, const DispatchInput& in) {
  Input view;
  basics("x", in.x, 2, "[m, hidden]");
  dtype("x", in.x, config.dtype);
  extent("x", in.x, 0, 0, in.num_tokens != nullptr ? INT32_MAX : config.max_tokens, "[m, hidden]");
  extent("x", in.x, 1, config.hidden, config.hidden, "[m, hidden]");
  unit_stride("x", in.x, 1);
  const std::int64_t m = in.x.shape[0];
  view.tokens = static_cast<std::int32_t>(m);
  if (in.num_tokens != nullptr) {
    view.tokens = *in.num_tokens;
    const std::int64_t most = std::min<std::int64_t>(m, config.max_tokens);
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

Output check_output(const Config& config, int local_experts, const DispatchOutput& out) {
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
                             const TensorView& rows) {
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
                                   bool accumulate) {
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
