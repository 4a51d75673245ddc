#include "support/player.hpp"

// The tensors that a player gives to its calls.
namespace moelane::test {

void Player::make_outputs() {
  const bool symmetric = engine_.direct();
  const Scene::Outputs specs = scene_.outputs(engine_.rank(), symmetric);
  const auto make = [&](const Spec& spec) {
    if (!symmetric) return Guarded(spec, site_);
    const TensorView view = engine_.allocate(lane_, DType::uint8, {static_cast<std::int64_t>(spec.bytes())});
    return Guarded(spec, site_, static_cast<std::byte*>(view.data));
  };
  const Config& c = scene_.config;
  x_ = make(specs.x);
  if (c.scale_columns > 0) scales_ = make(specs.scales);
  if (c.layout == Layout::ranked) {
    ids_ = make(specs.ids);
    weights_ = make(specs.weights);
  }
  rows_ = make(specs.rows);
  const std::int64_t most = scene_.most_local_experts();
  counts_ = Guarded(Spec::dense(DType::int32, {most}), site_);
  out_.x = x_.view();
  out_.scales = scales_.view();
  out_.expert_counts = counts_.view();
  if (c.layout == Layout::contiguous) {
    offsets_ = Guarded(Spec::dense(DType::int32, {most + 1}), site_);
    out_.expert_offsets = offsets_.view();
  }
  if (c.layout == Layout::ranked) {
    row_count_ = Guarded(Spec::dense(DType::int32, {1}), site_);
    out_.row_count = row_count_.view();
    out_.topk_ids = ids_.view();
    out_.topk_weights = weights_.view();
  }
}

// The same memory for the same specification: graphs find their tensors where they were.
void Player::renew(Guarded& tensor, const Spec& spec) {
  if (tensor.elements() == nullptr || tensor.spec() != spec) tensor = Guarded(spec, site_);
}

void Player::make_input() {
  const Config& c = scene_.config;
  const std::int64_t m = mine().tokens, most = scene_.num_tokens ? c.max_tokens + 2 : m;
  const bool odd = scene_.strides != Strides::dense;
  Spec x = Spec::dense(c.dtype, {most, c.hidden});
  if (odd) x = {c.dtype, {most, c.hidden}, {-(c.hidden + 5), 1}, 1};
  Spec scales = Spec::dense(scale_type(c), {most, c.scale_columns});
  if (scene_.scale_strides == Strides::odd)
    scales = {scale_type(c), scales.shape, {c.scale_columns * 2 + 1, 2}, 3};
  if (scene_.scale_strides == Strides::crossed) scales = {scale_type(c), scales.shape, {1, most + 2}, 1};
  Spec ids = Spec::dense(scene_.wide_ids ? DType::int64 : DType::int32, {most, c.topk});
  Spec weights = Spec::dense(DType::fp32, {most, c.topk});
  if (odd) {
    ids.strides = {1, most + 3};
    weights.strides = {c.topk * 3 + 1, 3};
    ids.shift = weights.shift = 8;
  }
  renew(x_in_, x);
  renew(scales_in_, scales);
  renew(ids_in_, ids);
  renew(weights_in_, weights);
  renew(num_tokens_, Spec::dense(DType::int32, {1}));
  for (Guarded* t : {&x_in_, &scales_in_, &ids_in_, &weights_in_, &num_tokens_}) t->poison(random_);
  const auto size = static_cast<std::size_t>(c.scale_bytes), topk = static_cast<std::size_t>(c.topk);
  for (std::int64_t t = 0; t < m; ++t) {
    const auto token = static_cast<std::size_t>(t);
    put_bytes(x_in_.at(t, 0), mine().x.data() + token * c.row_bytes(), c.row_bytes());
    for (std::int64_t s = 0; s < c.scale_columns; ++s) {
      const std::size_t from = token * c.scale_row_bytes() + static_cast<std::size_t>(s) * size;
      put_bytes(scales_in_.at(t, s), mine().scales.data() + from, size);
    }
    for (std::int64_t k = 0; k < c.topk; ++k) {
      const std::size_t from = token * topk + static_cast<std::size_t>(k);
      const std::int64_t id = mine().ids[from];
      put_bytes(ids_in_.at(t, k), &id, scene_.wide_ids ? 8 : 4);
      put_bytes(weights_in_.at(t, k), &mine().weights[from], 4);
    }
  }
  const auto tokens = static_cast<std::int32_t>(m);
  put_bytes(num_tokens_.at(0), &tokens, 4);
  in_ = {};
  in_.x = x_in_.view();
  if (c.scale_columns > 0) in_.scales = scales_in_.view();
  in_.topk_ids = ids_in_.view();
  in_.topk_weights = weights_in_.view();
  if (scene_.num_tokens) in_.num_tokens = static_cast<const std::int32_t*>(num_tokens_.view().data);
  for (Guarded* t : {&x_in_, &scales_in_, &ids_in_, &weights_in_, &num_tokens_}) {
    t->accept();
    t->upload();
  }
}

void Player::poison_outputs() {
  for (Guarded* t : {&x_, &scales_, &counts_, &offsets_, &row_count_, &ids_, &weights_}) {
    t->poison(random_);
    t->upload();
  }
}

std::int64_t Player::spoil_ids(std::int64_t id) {
  const std::int64_t topk = scene_.config.topk;
  std::int64_t first = -1;
  for (std::int64_t i = mine().tokens * topk; i-- > 0;) {
    if (mine().ids[static_cast<std::size_t>(i)] != -1) continue;
    put_bytes(ids_in_.at(i / topk, i % topk), &id, scene_.wide_ids ? 8 : 4);
    first = i;
  }
  ids_in_.accept();
  ids_in_.upload();
  return first;
}

void Player::spoil_tokens(std::int32_t tokens) {
  put_bytes(num_tokens_.at(0), &tokens, 4);
  num_tokens_.accept();
  num_tokens_.upload();
}

}  // namespace moelane::test
