#include <cstring>

#include "reference/compare_dispatch.hpp"
#include "reference/expected_combine.hpp"
#include "reference/toy_expert.hpp"
#include "support/player.hpp"

// What the tensors of a step have to hold, byte for byte.
namespace moelane::test {
namespace {

void put_numbers(std::byte* to, const std::vector<std::int32_t>& from) {
  put_bytes(to, from.data(), from.size() * 4);
}

}  // namespace

void Player::check_dispatch() {
  const Config& c = scene_.config;
  const auto topk = static_cast<std::size_t>(c.topk), size = static_cast<std::size_t>(c.scale_bytes);
  const bool padded = c.layout == Layout::padded;
  for (const tools::ExpectedRow& row : expected_.rows) {
    const tools::GroupStep& from = groups_[static_cast<std::size_t>(row.group)];
    const auto token = static_cast<std::size_t>(row.token);
    const std::int64_t first = padded ? row.local : row.row, second = padded ? row.row : 0;
    put_bytes(x_.wanted(first, second), from.x.data() + token * c.row_bytes(), c.row_bytes());
    for (std::int64_t s = 0; s < c.scale_columns; ++s) {
      std::byte* to = padded ? scales_.wanted(first, second, s) : scales_.wanted(first, s);
      put_bytes(to, from.scales.data() + token * c.scale_row_bytes() + static_cast<std::size_t>(s) * size,
                size);
    }
    for (std::size_t k = 0; c.layout == Layout::ranked && k < topk; ++k) {
      const std::int32_t id = from.ids[token * topk + k];
      std::int32_t local = -1;
      for (std::size_t e = 0; e < experts_.size(); ++e) {
        if (experts_[e] == id) local = static_cast<std::int32_t>(e);
      }
      const float weight = local < 0 ? 0.0F : from.weights[token * topk + k];
      put_bytes(ids_.wanted(row.row, static_cast<std::int64_t>(k)), &local, 4);
      put_bytes(weights_.wanted(row.row, static_cast<std::int64_t>(k)), &weight, 4);
    }
  }
  if (!expected_.counts.empty()) put_numbers(counts_.wanted(0), expected_.counts);
  if (!expected_.offsets.empty()) put_numbers(offsets_.wanted(0), expected_.offsets);
  if (c.layout == Layout::ranked) put_bytes(row_count_.wanted(0), &expected_.row_count, 4);

  const std::string where = " of step " + std::to_string(step_) + ", lane " + std::to_string(lane_);
  counts_.check("expert_counts" + where);
  offsets_.check("expert_offsets" + where);
  row_count_.check("row_count" + where);
  x_.check("x" + where);
  scales_.check("scales" + where);
  ids_.check("topk_ids" + where);
  weights_.check("topk_weights" + where);
  check_by_reference();
}

// The same again as the program does it, where it can.
void Player::check_by_reference() {
  if (scene_.config.layout == Layout::ranked && scene_.strides != Strides::dense) return;
  const auto bytes = [](const TensorView& view, int dim) {
    return dim < 0
               ? 0
               : view.strides[static_cast<std::size_t>(dim)] * static_cast<std::int64_t>(size_of(view.dtype));
  };
  const int rows = scene_.config.layout == Layout::padded ? 1 : 0;
  tools::DispatchedView got;
  got.x = x_.elements();
  got.expert_stride = bytes(out_.x, rows - 1);
  got.row_stride = bytes(out_.x, rows);
  got.scales = scales_.elements();
  got.scale_expert_stride = bytes(out_.scales, rows - 1);
  got.scale_row_stride = bytes(out_.scales, rows);
  got.scale_column_stride = bytes(out_.scales, rows + 1);
  got.counts = reinterpret_cast<const std::int32_t*>(counts_.elements());
  got.offsets = reinterpret_cast<const std::int32_t*>(offsets_.elements());
  got.row_count = reinterpret_cast<const std::int32_t*>(row_count_.elements());
  got.ids = reinterpret_cast<const std::int32_t*>(ids_.elements());
  got.weights = reinterpret_cast<const float*>(weights_.elements());
  const auto difference =
      tools::compare_dispatch(scene_.config, table_, engine_.rank(), groups_, expected_, got);
  require(difference.bytes == 0, "compare_dispatch disagrees: " + difference.first);
}

// Every row that is there is answered from what arrived; all other rows are garbage, which combine must not
// touch.
void Player::answer() {
  const Config& c = scene_.config;
  const auto topk = static_cast<std::size_t>(c.topk);
  const bool padded = c.layout == Layout::padded;
  rows_.poison(random_);
  std::vector<std::byte> scales(c.scale_row_bytes());
  std::vector<std::int32_t> ids(topk);
  std::vector<float> weights(topk);
  for (const tools::ExpectedRow& row : expected_.rows) {
    const std::int64_t first = padded ? row.local : row.row, second = padded ? row.row : 0;
    for (std::int64_t s = 0; s < c.scale_columns; ++s) {
      put_bytes(scales.data() + s * c.scale_bytes,
                padded ? scales_.at(first, second, s) : scales_.at(first, s),
                static_cast<std::size_t>(c.scale_bytes));
    }
    std::byte* to = rows_.at(first, second);
    if (c.layout != Layout::ranked) {
      tools::toy_expert(c, experts_[static_cast<std::size_t>(row.local)], x_.at(first, second), scales.data(),
                        to);
      continue;
    }
    for (std::size_t k = 0; k < topk; ++k) {
      std::memcpy(&ids[k], ids_.at(row.row, static_cast<std::int64_t>(k)), 4);
      std::memcpy(&weights[k], weights_.at(row.row, static_cast<std::int64_t>(k)), 4);
    }
    tools::toy_experts_ranked(c, experts_.data(), ids.data(), weights.data(), x_.at(first), scales.data(),
                              to);
  }
  rows_.accept();
  rows_.upload();
}

// The output holds old values, any bits.
void Player::make_combined() {
  const Config& c = scene_.config;
  // A number on the card is not known on the host: there must be room for the most.
  const bool hidden = scene_.num_tokens && site_.device == Device::cuda;
  const std::int64_t rows = (hidden ? c.max_tokens : mine().tokens) + (scene_.num_tokens ? 1 : 0);
  Spec spec = Spec::dense(c.out_dtype, {rows, c.hidden});
  if (scene_.strides == Strides::odd) spec = {c.out_dtype, spec.shape, {c.hidden + 7, 1}, 1};
  if (scene_.strides == Strides::crossed) spec = {c.out_dtype, spec.shape, {-(c.hidden + 2), 1}, 2};
  renew(combined_, spec);
  combined_.poison(random_);
  combined_.upload();
}

void Player::check_combine() {
  const Config& c = scene_.config;
  const std::size_t row_bytes = static_cast<std::size_t>(c.hidden) * size_of(c.out_dtype);
  std::vector<std::byte> old(static_cast<std::size_t>(mine().tokens) * row_bytes);
  for (std::int64_t t = 0; t < mine().tokens; ++t) {
    put_bytes(old.data() + static_cast<std::size_t>(t) * row_bytes, combined_.wanted(t), row_bytes);
  }
  const std::vector<std::byte> expected =
      tools::expected_combine(c, table_, mine(), scene_.accumulate ? old.data() : nullptr, dropped_);
  for (std::int64_t t = 0; t < mine().tokens; ++t) {
    put_bytes(combined_.wanted(t), expected.data() + static_cast<std::size_t>(t) * row_bytes, row_bytes);
  }
  combined_.check("out of step " + std::to_string(step_) + ", lane " + std::to_string(lane_));
}

}  // namespace moelane::test
