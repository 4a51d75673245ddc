#include "support/scene.hpp"

#include <algorithm>

#include "support/gpu_ranks.hpp"

namespace moelane::test {
namespace {

constexpr std::uint64_t kTokens = tools::stream::first_free + 100, kCalls = kTokens + 1,
                        kSpecial = kTokens + 2;

tools::Random random_of(const Scene& scene, int step, int group, std::uint64_t stream) {
  return {scene.seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(group), stream};
}

// A tensor of rows; with the experts in front where `experts` is not negative.
Spec rows_of(DType type, std::int64_t experts, std::int64_t rows, std::int64_t columns, Strides strides) {
  const bool padded = experts >= 0;
  Spec spec = padded ? Spec::dense(type, {experts, rows, columns}) : Spec::dense(type, {rows, columns});
  if (strides == Strides::dense) return spec;
  const std::int64_t pitch = columns + 3;
  spec.shift = 1;
  if (!padded) {
    spec.strides = {strides == Strides::crossed ? -pitch : pitch, 1};
  } else if (strides == Strides::odd) {
    spec.strides = {pitch * rows + 5, pitch, 1};
  } else {
    spec.strides = {pitch, pitch * std::max<std::int64_t>(experts, 1), 1};
  }
  return spec;
}

// Scales: odd leaves gaps within rows, crossed lays columns side by side.
Spec scales_of(DType type, std::int64_t experts, std::int64_t rows, std::int64_t columns, Strides strides) {
  const bool padded = experts >= 0;
  Spec spec = padded ? Spec::dense(type, {experts, rows, columns}) : Spec::dense(type, {rows, columns});
  if (strides == Strides::dense) return spec;
  spec.shift = 1;
  const bool odd = strides == Strides::odd;
  const std::int64_t row = odd ? columns * 3 + 2 : 1, column = odd ? 3 : rows + 1;
  const std::int64_t expert = odd ? row * rows : column * columns + 1;
  if (padded) {
    spec.strides = {expert, row, column};
  } else {
    spec.strides = {row, column};
  }
  return spec;
}

}  // namespace

std::vector<std::int32_t> experts_of(std::span<const std::int32_t> table, int rank) {
  std::vector<std::int32_t> experts;
  for (std::size_t e = 0; e < table.size(); ++e) {
    if (table[e] == rank) experts.push_back(static_cast<std::int32_t>(e));
  }
  return experts;
}

DType scale_type(const Config& config) {
  switch (config.scale_bytes) {
    case 1:
      return DType::uint8;
    case 2:
      return DType::fp16;
    case 8:
      return DType::int64;
    default:
      return DType::fp32;
  }
}

int Scene::tokens_of(int step, int group) const {
  if (tokens) return tokens(step, group);
  tools::Random random = random_of(*this, step, group, kTokens);
  switch (random.below(6)) {
    case 0:
      return 0;
    case 1:
      return config.max_tokens;
    default:
      return static_cast<int>(random.below(static_cast<std::uint64_t>(config.max_tokens) + 1));
  }
}

std::vector<std::int32_t> Scene::table(int step) const {
  if (!tables.empty()) return tables[static_cast<std::size_t>(step) % tables.size()];
  std::vector<std::int32_t> even;
  for (int r = 0; r < ranks; ++r) {
    const int count = config.experts / ranks + (r < config.experts % ranks ? 1 : 0);
    even.insert(even.end(), static_cast<std::size_t>(count), r);
  }
  return even;
}

int Scene::most_local_experts() const {
  std::size_t most = 0;
  for (std::size_t t = 0; t < std::max<std::size_t>(tables.size(), 1); ++t) {
    const std::vector<std::int32_t> rank_of = table(static_cast<int>(t));
    for (int r = 0; r < ranks; ++r) most = std::max(most, experts_of(rank_of, r).size());
  }
  return static_cast<int>(most);
}

int Scene::capacity_of(int rank) const {
  if (capacity) return capacity(rank);
  const int tokens_in_all = groups() * config.max_tokens;
  if (config.layout == Layout::ranked) return tokens_in_all;
  const int places = tokens_in_all * config.topk;
  return config.layout == Layout::padded ? places : places + most_local_experts() * config.alignment;
}

std::vector<std::int32_t> Scene::capacities() const {
  std::vector<std::int32_t> all;
  for (int r = 0; r < ranks; ++r) all.push_back(capacity_of(r));
  return all;
}

tools::GroupStep Scene::input(int step, int group) const {
  const MessyRouting messy(config.experts, config.topk, habits, seed);
  const tools::RoutingSource& source = routing != nullptr ? *routing : messy;
  const int m = tokens_of(step, group);
  tools::GroupStep made = tools::Workload(config, ranks, source, {m, m}, seed).make(step, group);
  if (special_values) sprinkle(config, made, random_of(*this, step, group, kSpecial));
  return made;
}

Calls Scene::calls_of(int step, bool dispatch) const {
  if (calls != Calls::mixed) return calls;
  // Between ranks that can go directly, a whole dispatch wants a whole combine.
  const bool direct = config.way == Way::automatic && !config.partial_sums && !config.force_puts;
  tools::Random random = random_of(*this, step, 0, kCalls);
  const bool whole_dispatch = random.below(2) == 0, whole_combine = random.below(2) == 0;
  const bool whole = dispatch ? whole_dispatch : whole_combine || (direct && whole_dispatch);
  return whole ? Calls::whole : Calls::split;
}

Scene::Outputs Scene::outputs(int rank, bool symmetric) const {
  const bool padded = config.layout == Layout::padded;
  std::int64_t experts = -1;
  if (padded) experts = most_local_experts();
  if (padded && exact_experts && !symmetric)
    experts = static_cast<std::int64_t>(experts_of(table(0), rank).size());
  const std::int64_t rows = capacity_of(rank);
  Outputs all;
  all.x = rows_of(config.dtype, experts, rows, config.hidden, strides);
  all.scales = scales_of(scale_type(config), experts, rows, config.scale_columns, scale_strides);
  all.ids = Spec::dense(DType::int32, {rows, config.topk});
  all.weights = Spec::dense(DType::fp32, {rows, config.topk});
  if (strides != Strides::dense) {
    all.ids.strides = {2 * config.topk + 1, 2};
    all.weights.strides = {1, rows + 1};
  }
  all.rows = rows_of(config.combine_dtype, experts, rows, config.hidden, strides);
  return all;
}

void Scene::reserve() {
  config.symmetric_bytes = 0;
  if (on_gpu() && config.num_sms == 0) config.num_sms = share_of_card(ranks, config.in_flight);
  if (config.way == Way::put || config.partial_sums || config.force_puts) return;
  const Outputs all = outputs(0, true);
  for (const Spec* spec : {&all.x, &all.scales, &all.ids, &all.weights, &all.rows}) {
    config.symmetric_bytes += (spec->bytes() + 255) / 256 * 256;
  }
}

}  // namespace moelane::test
