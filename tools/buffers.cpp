#include "buffers.hpp"

#include <xxhash.h>

#include <algorithm>

#include "toy_expert.hpp"

namespace moelane::tools {
namespace {

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

DType scale_type(const Config& config) {
  switch (config.scale_bytes) {
    case 1:
      return DType::uint8;
    case 2:
      return DType::bf16;
    case 8:
      return DType::int64;
    default:
      return DType::fp32;
  }
}

std::byte* row_at(const TensorView& t, std::int64_t local, std::int64_t row) {
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  const std::int64_t offset = t.ndim == 3 ? local * t.strides[0] + row * t.strides[1] : row * t.strides[0];
  return static_cast<std::byte*>(t.data) + offset * size;
}

// Calls visit(local, row) for every dispatched row, in order.
template <class Visit>
void for_each_row(const Options& options, int local_experts, const StepBuffers& b, const Visit& visit) {
  if (options.config.layout == Layout::ranked) {
    for (std::int32_t row = 0; row < b.row_count[0]; ++row) visit(0, row);
    return;
  }
  for (std::int32_t local = 0; local < local_experts; ++local) {
    const auto l = static_cast<std::size_t>(local);
    const std::int32_t first = options.padded() ? 0 : b.offsets[l];
    for (std::int32_t row = first; row < first + b.counts[l]; ++row) visit(local, row);
  }
}

}  // namespace

DispatchOutput StepBuffers::output() const {
  DispatchOutput o;
  o.x = x;
  o.scales = scales;
  o.expert_counts =
      TensorView::dense(counts.data(), DType::int32, {static_cast<std::int64_t>(counts.size())});
  if (!offsets.empty()) {
    o.expert_offsets =
        TensorView::dense(offsets.data(), DType::int32, {static_cast<std::int64_t>(offsets.size())});
  }
  if (ids) {
    o.row_count = TensorView::dense(row_count.data(), DType::int32, {1});
    o.topk_ids = ids;
    o.topk_weights = weights;
  }
  return o;
}

DispatchedView StepBuffers::view(const Options& options) const {
  const bool padded = options.padded();
  const auto row = static_cast<std::int64_t>(options.config.row_bytes());
  const auto scale_row = static_cast<std::int64_t>(options.config.scale_row_bytes());
  DispatchedView v;
  v.x = static_cast<const std::byte*>(x.data);
  v.row_stride = row;
  v.expert_stride = padded ? row * options.capacity : 0;
  v.scales = static_cast<const std::byte*>(scales.data);
  v.scale_row_stride = scale_row;
  v.scale_expert_stride = padded ? scale_row * options.capacity : 0;
  v.scale_column_stride = options.config.scale_bytes;
  v.counts = counts.data();
  v.offsets = offsets.data();
  v.row_count = row_count.data();
  v.ids = static_cast<const std::int32_t*>(ids.data);
  v.weights = static_cast<const float*>(weights.data);
  return v;
}

std::size_t symmetric_bytes(const Options& options, int max_local_experts, int sets) {
  const Config& c = options.config;
  const std::size_t rows = static_cast<std::size_t>(options.capacity) *
                           static_cast<std::size_t>(options.padded() ? max_local_experts : 1);
  const std::size_t row = c.row_bytes() + c.scale_row_bytes() +
                          static_cast<std::size_t>(c.hidden) * size_of(c.combine_dtype) +
                          static_cast<std::size_t>(c.topk) * 8;
  const double about = static_cast<double>(rows) * static_cast<double>(row) * sets;
  if (about > 0x1p60)
    return static_cast<std::size_t>(std::min(about, 0x1p62));  // refused; it must not wrap around
  std::size_t bytes = rounded(rows * c.row_bytes()) + rounded(rows * c.scale_row_bytes()) +
                      rounded(rows * static_cast<std::size_t>(c.hidden) * size_of(c.combine_dtype));
  if (c.layout == Layout::ranked) bytes += 2 * rounded(rows * static_cast<std::size_t>(c.topk) * 4);
  return (bytes * static_cast<std::size_t>(sets) + 4095) / 4096 * 4096;
}

StepBuffers allocate_buffers(Engine& engine, const Options& options, int lane) {
  const Config& c = options.config;
  const std::int64_t locals = engine.placement().max_local_experts(), rows = options.capacity;
  StepBuffers b;
  const auto tensor = [&](DType type, std::int64_t columns) {
    return options.padded() ? engine.allocate(lane, type, {locals, rows, columns})
                            : engine.allocate(lane, type, {rows, columns});
  };
  b.x = tensor(c.dtype, c.hidden);
  if (c.scale_columns > 0) b.scales = tensor(scale_type(c), c.scale_columns);
  b.expert_rows = tensor(c.combine_dtype, c.hidden);
  if (c.layout == Layout::ranked) {
    b.ids = tensor(DType::int32, c.topk);
    b.weights = tensor(DType::fp32, c.topk);
  }
  b.row_count.resize(1);
  b.counts.resize(static_cast<std::size_t>(locals));
  if (c.layout == Layout::contiguous) b.offsets.resize(static_cast<std::size_t>(locals) + 1);
  b.out.resize(static_cast<std::size_t>(c.max_tokens) * static_cast<std::size_t>(c.hidden) *
               size_of(c.out_dtype));
  return b;
}

DispatchInput input_of(const Config& config, const GroupStep& step) {
  DispatchInput in;
  in.x = TensorView::dense(step.x.data(), config.dtype, {step.tokens, config.hidden});
  if (config.scale_columns > 0) {
    in.scales =
        TensorView::dense(step.scales.data(), scale_type(config), {step.tokens, config.scale_columns});
  }
  in.topk_ids = TensorView::dense(step.ids.data(), DType::int32, {step.tokens, config.topk});
  in.topk_weights = TensorView::dense(step.weights.data(), DType::fp32, {step.tokens, config.topk});
  return in;
}

void run_experts(const Options& options, const Placement& placement, int rank, StepBuffers& b) {
  const Config& c = options.config;
  const std::int32_t* experts = placement.experts_of(rank).data();
  for_each_row(options, placement.local_experts(rank), b, [&](std::int32_t local, std::int32_t row) {
    const std::byte* scales = b.scales ? row_at(b.scales, local, row) : nullptr;
    std::byte* to = row_at(b.expert_rows, local, row);
    if (c.layout == Layout::ranked) {
      toy_experts_ranked(c, experts, reinterpret_cast<const std::int32_t*>(row_at(b.ids, 0, row)),
                         reinterpret_cast<const float*>(row_at(b.weights, 0, row)), row_at(b.x, 0, row),
                         scales, to);
    } else {
      toy_expert(c, experts[local], row_at(b.x, local, row), scales, to);
    }
  });
}

std::uint64_t digest_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  return bytes == 0 ? seed : XXH3_64bits_withSeed(data, bytes, seed);
}

std::uint64_t digest_dispatch(const Options& options, int local_experts, const StepBuffers& b) {
  const Config& c = options.config;
  std::uint64_t digest = digest_bytes(b.counts.data(), static_cast<std::size_t>(local_experts) * 4, 0);
  for_each_row(options, local_experts, b, [&](std::int32_t local, std::int32_t row) {
    digest = digest_bytes(row_at(b.x, local, row), c.row_bytes(), digest);
    if (b.scales) digest = digest_bytes(row_at(b.scales, local, row), c.scale_row_bytes(), digest);
    if (b.ids) {
      digest = digest_bytes(row_at(b.ids, 0, row), static_cast<std::size_t>(c.topk) * 4, digest);
      digest = digest_bytes(row_at(b.weights, 0, row), static_cast<std::size_t>(c.topk) * 4, digest);
    }
  });
  return digest;
}

}  // namespace moelane::tools
