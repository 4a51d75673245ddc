#include "run/buffers.hpp"

#include <xxhash.h>

#include <algorithm>

#include "reference/toy_expert.hpp"

namespace moelane::tools {
namespace {

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::size_t row_bytes(const TensorView& t) {
  return static_cast<std::size_t>(t.shape[static_cast<std::size_t>(t.ndim - 1)]) * size_of(t.dtype);
}

// From the start of a dense tensor.
std::size_t offset_of(const TensorView& t, std::int64_t local, std::int64_t row) {
  const std::int64_t before = t.ndim == 3 ? local * t.strides[0] + row * t.strides[1] : row * t.strides[0];
  return static_cast<std::size_t>(before) * size_of(t.dtype);
}

std::byte* row_at(const Tensor& t, std::int64_t local, std::int64_t row) {
  return t.as<std::byte>() + offset_of(t.host, local, row);
}

// Calls visit(local, first, rows) for the rows of every expert (ranked: for all at once), in order. Wrong
// counts lead nowhere outside of the tensors.
template <class Visit>
void for_each_block(const Options& options, int local_experts, const StepBuffers& b, const Visit& visit) {
  const auto within = [&](std::int32_t first, std::int32_t rows) {
    return std::clamp(rows, 0, std::max(0, options.capacity - first));
  };
  if (options.config.layout == Layout::ranked) return visit(0, 0, within(0, *b.row_count.as<std::int32_t>()));
  for (std::int32_t local = 0; local < local_experts; ++local) {
    const std::int32_t first = options.padded() ? 0 : std::max(0, b.offsets.as<std::int32_t>()[local]);
    visit(local, first, within(first, b.counts.as<std::int32_t>()[local]));
  }
}

// Calls visit(local, row) for every dispatched row, in order.
template <class Visit>
void for_each_row(const Options& options, int local_experts, const StepBuffers& b, const Visit& visit) {
  for_each_block(options, local_experts, b, [&](std::int32_t local, std::int32_t first, std::int32_t rows) {
    for (std::int32_t row = first; row < first + rows; ++row) visit(local, row);
  });
}

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

StepBuffers allocate_buffers(const Place& place, Engine& engine, const Options& options, int lane) {
  const Config& c = options.config;
  const std::int64_t locals = engine.placement().max_local_experts(), rows = options.capacity;
  StepBuffers b;
  const auto tensor = [&](DType type, std::int64_t columns) {
    return options.padded() ? place.symmetric(engine, lane, type, {locals, rows, columns})
                            : place.symmetric(engine, lane, type, {rows, columns});
  };
  b.in = StepInput(place, c);
  b.x = tensor(c.dtype, c.hidden);
  if (c.scale_columns > 0) b.scales = tensor(scale_type(c), c.scale_columns);
  b.expert_rows = tensor(c.combine_dtype, c.hidden);
  if (c.layout == Layout::ranked) {
    b.ids = tensor(DType::int32, c.topk);
    b.weights = tensor(DType::fp32, c.topk);
    b.row_count = place.own(DType::int32, {1});
  }
  b.counts = place.own(DType::int32, {locals});
  if (c.layout == Layout::contiguous) b.offsets = place.own(DType::int32, {locals + 1});
  b.out = place.own(c.out_dtype, {c.max_tokens, c.hidden});
  return b;
}

void fetch_dispatched(const Options& options, const Place& place, int local_experts, const StepBuffers& b) {
  if (!place.card()) return;
  for (const Tensor* t : {&b.counts, &b.offsets, &b.row_count}) place.download(*t);
  for_each_block(options, local_experts, b, [&](std::int32_t local, std::int32_t first, std::int32_t rows) {
    for (const Tensor* t : {&b.x, &b.scales, &b.ids, &b.weights}) {
      if (*t)
        place.download(*t, offset_of(t->host, local, first),
                       static_cast<std::size_t>(rows) * row_bytes(t->host));
    }
  });
}

void run_experts(const Options& options, const Place& place, const Placement& placement, int rank,
                 const StepBuffers& b) {
  const Config& c = options.config;
  const std::int32_t* experts = placement.experts_of(rank).data();
  const int locals = placement.local_experts(rank);
  for_each_row(options, locals, b, [&](std::int32_t local, std::int32_t row) {
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
  for_each_block(options, locals, b, [&](std::int32_t local, std::int32_t first, std::int32_t rows) {
    const TensorView& t = b.expert_rows.host;
    place.upload(b.expert_rows, offset_of(t, local, first), static_cast<std::size_t>(rows) * row_bytes(t));
  });
}

std::uint64_t digest_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  return bytes == 0 ? seed : XXH3_64bits_withSeed(data, bytes, seed);
}

std::uint64_t digest_dispatch(const Options& options, int local_experts, const StepBuffers& b) {
  const Config& c = options.config;
  std::uint64_t digest = digest_bytes(b.counts.host.data, static_cast<std::size_t>(local_experts) * 4, 0);
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
