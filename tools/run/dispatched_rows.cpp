#include "run/dispatched_rows.hpp"

#include <algorithm>

#include "reference/toy_expert.hpp"
#include "report/digest.hpp"

namespace moelane::tools {
namespace {

std::size_t row_bytes(const TensorView& t) {
  return static_cast<std::size_t>(t.shape[static_cast<std::size_t>(t.ndim - 1)]) * size_of(t.dtype);
}

// From the start of a dense tensor.
std::size_t offset_of(const TensorView& t, std::int64_t local, std::int64_t row) {
  const std::int64_t before = t.ndim == 3 ? local * t.strides[0] + row * t.strides[1] : row * t.strides[0];
  return static_cast<std::size_t>(before) * size_of(t.dtype);
}

std::byte* row_at(const MirroredTensor& t, std::int64_t local, std::int64_t row) {
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

void fetch_dispatched(const Options& options, const RankDevice& device, int local_experts,
                      const StepBuffers& b) {
  if (!device.on_card()) return;
  for (const MirroredTensor* t : {&b.counts, &b.offsets, &b.row_count}) device.download(*t);
  for_each_block(options, local_experts, b, [&](std::int32_t local, std::int32_t first, std::int32_t rows) {
    for (const MirroredTensor* t : {&b.x, &b.scales, &b.ids, &b.weights}) {
      if (*t)
        device.download(*t, offset_of(t->host, local, first),
                        static_cast<std::size_t>(rows) * row_bytes(t->host));
    }
  });
}

void run_experts(const Options& options, const RankDevice& device, const Placement& placement, int rank,
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
    device.upload(b.expert_rows, offset_of(t, local, first), static_cast<std::size_t>(rows) * row_bytes(t));
  });
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
