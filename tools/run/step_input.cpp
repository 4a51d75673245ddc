#include "run/step_input.hpp"

#include "run/step_buffers.hpp"

namespace moelane::tools {
namespace {

DispatchInput input_of(const Config& config, int tokens, const GroupStep& step) {
  DispatchInput in;
  in.x = TensorView::dense(step.x.data(), config.dtype, {tokens, config.hidden});
  if (config.scale_columns > 0) {
    in.scales = TensorView::dense(step.scales.data(), scale_type(config), {tokens, config.scale_columns});
  }
  in.topk_ids = TensorView::dense(step.ids.data(), DType::int32, {tokens, config.topk});
  in.topk_weights = TensorView::dense(step.weights.data(), DType::fp32, {tokens, config.topk});
  return in;
}

std::array<TensorView*, 4> tensors(DispatchInput& in) {
  return {&in.x, &in.scales, &in.topk_ids, &in.topk_weights};
}

}  // namespace

StepInput::StepInput(const RankDevice& device, const Config& config) : most_(config.max_tokens) {
  if (!device.on_card()) return;
  in_ = input_of(config, most_, {});
  const auto all = tensors(in_);
  for (std::size_t i = 0; i < all.size(); ++i) {
    memory_[i] = gpu::Memory(bytes_of(*all[i]));
    all[i]->data = memory_[i].data();
    all[i]->device = Device::cuda;
  }
  memory_[4] = gpu::Memory(sizeof most_);
}

void StepInput::load(const RankDevice& device, const Config& config, const GroupStep& step) {
  tokens_ = step.tokens;
  DispatchInput given = input_of(config, tokens_, step);
  if (!device.on_card()) {
    in_ = given;
    return;
  }
  const auto from = tensors(given);
  for (std::size_t i = 0; i < from.size(); ++i) {
    gpu::upload(memory_[i].data(), from[i]->data, bytes_of(*from[i]), device.stream());
  }
  gpu::upload(memory_[4].data(), &tokens_, sizeof tokens_, device.stream());
}

DispatchInput StepInput::view(bool device_count) const {
  DispatchInput in = in_;
  for (TensorView* t : tensors(in)) t->shape[0] = device_count ? most_ : tokens_;
  if (device_count) in.num_tokens = reinterpret_cast<const std::int32_t*>(memory_[4].data());
  return in;
}

}  // namespace moelane::tools
