#include "run/step_buffers.hpp"

#include <algorithm>

namespace moelane::tools {
namespace {

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

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

DispatchOutput StepBuffers::output() const {
  DispatchOutput o;
  o.x = x.engine;
  o.scales = scales.engine;
  o.expert_counts = counts.engine;
  o.expert_offsets = offsets.engine;
  o.row_count = row_count.engine;
  o.topk_ids = ids.engine;
  o.topk_weights = weights.engine;
  return o;
}

TensorView StepBuffers::result(std::int64_t tokens) const {
  TensorView rows = out.engine;
  rows.shape[0] = tokens;
  return rows;
}

DispatchedView StepBuffers::view(const Options& options) const {
  const bool padded = options.padded();
  const auto row = static_cast<std::int64_t>(options.config.row_bytes());
  const auto scale_row = static_cast<std::int64_t>(options.config.scale_row_bytes());
  DispatchedView v;
  v.x = x.as<std::byte>();
  v.row_stride = row;
  v.expert_stride = padded ? row * options.capacity : 0;
  v.scales = scales.as<std::byte>();
  v.scale_row_stride = scale_row;
  v.scale_expert_stride = padded ? scale_row * options.capacity : 0;
  v.scale_column_stride = options.config.scale_bytes;
  v.counts = counts.as<std::int32_t>();
  v.offsets = offsets.as<std::int32_t>();
  v.row_count = row_count.as<std::int32_t>();
  v.ids = ids.as<std::int32_t>();
  v.weights = weights.as<float>();
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

StepBuffers allocate_buffers(const RankDevice& device, Engine& engine, const Options& options, int lane) {
  const Config& c = options.config;
  const std::int64_t locals = engine.placement().max_local_experts(), rows = options.capacity;
  StepBuffers b;
  const auto tensor = [&](DType type, std::int64_t columns) {
    return options.padded() ? device.allocate_symmetric(engine, lane, type, {locals, rows, columns})
                            : device.allocate_symmetric(engine, lane, type, {rows, columns});
  };
  b.in = StepInput(device, c);
  b.x = tensor(c.dtype, c.hidden);
  if (c.scale_columns > 0) b.scales = tensor(scale_type(c), c.scale_columns);
  b.expert_rows = tensor(c.combine_dtype, c.hidden);
  if (c.layout == Layout::ranked) {
    b.ids = tensor(DType::int32, c.topk);
    b.weights = tensor(DType::fp32, c.topk);
    b.row_count = device.allocate(DType::int32, {1});
  }
  b.counts = device.allocate(DType::int32, {locals});
  if (c.layout == Layout::contiguous) b.offsets = device.allocate(DType::int32, {locals + 1});
  b.out = device.allocate(c.out_dtype, {c.max_tokens, c.hidden});
  return b;
}

}  // namespace moelane::tools
