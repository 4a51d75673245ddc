// Two ranks of one process and four experts: tokens travel to their experts, and come back as weighted sums.
#include <cstdint>
#include <cstdio>
#include <moelane/moelane.hpp>
#include <thread>
#include <vector>

using moelane::DType;
using moelane::TensorView;

constexpr std::int64_t kRanks = 2, kExperts = 4, kTopk = 2, kHidden = 8, kTokens = 3;
constexpr std::int64_t kCapacity = kRanks * kTokens;  // what one expert gets at most: every token once

// What all ranks agree on.
moelane::Config make_config() {
  moelane::Config config;
  config.experts = kExperts;
  config.topk = kTopk;
  config.hidden = kHidden;
  config.max_tokens = kTokens;
  config.dtype = config.combine_dtype = config.out_dtype = DType::fp32;
  config.timeout = 10;
  // Room in each lane for two tensors of this rank's experts (Engine::allocate aligns to 256 bytes).
  config.symmetric_bytes = 2 * (kExperts / kRanks * kCapacity * kHidden * 4 + 256);
  return config;
}

// One rank. True when every element of the output is right.
bool play(const moelane::World& world) {
  moelane::Engine engine(world, make_config());  // collective: all ranks make theirs
  const int lane = 0, rank = engine.rank();
  const std::int64_t locals = engine.placement().max_local_experts();  // experts 2 * rank and 2 * rank + 1

  // Peers write into the outputs of dispatch and read the experts' answers, so both are symmetric tensors.
  const TensorView rows = engine.allocate(lane, DType::fp32, {locals, kCapacity, kHidden});
  const TensorView answers = engine.allocate(lane, DType::fp32, {locals, kCapacity, kHidden});
  std::vector<std::int32_t> counts(static_cast<std::size_t>(locals));
  moelane::DispatchOutput output;
  output.x = rows;
  output.expert_counts = TensorView::dense(counts.data(), DType::int32, {locals});

  // Three tokens, each for two experts; the last one has only one, -1 stands for none.
  std::vector<float> x(kTokens * kHidden), sums(kTokens * kHidden);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(100 * rank) + static_cast<float>(i);
  const std::int32_t ids[kTokens][kTopk] = {{0, 3}, {2, 1}, {1, -1}};
  const float weights[kTokens][kTopk] = {{0.5F, 0.25F}, {0.75F, 0.5F}, {1.0F, 0.0F}};
  moelane::DispatchInput input;
  input.x = TensorView::dense(x.data(), DType::fp32, {kTokens, kHidden});
  input.topk_ids = TensorView::dense(ids, DType::int32, {kTokens, kTopk});
  input.topk_weights = TensorView::dense(weights, DType::fp32, {kTokens, kTopk});

  engine.dispatch(lane, input, output);

  // Expert e multiplies by e + 1. Its rows lie ordered by rank and token, counts[local] of them.
  const auto* in = static_cast<const float*>(rows.data);
  auto* out = static_cast<float*>(answers.data);
  for (std::int64_t local = 0; local < locals; ++local) {
    const auto factor = static_cast<float>(rank * locals + local + 1);
    const std::int64_t begin = local * kCapacity * kHidden;
    const std::int64_t end = begin + counts[static_cast<std::size_t>(local)] * kHidden;
    for (std::int64_t i = begin; i < end; ++i) out[i] = factor * in[i];
  }

  engine.combine(lane, answers, TensorView::dense(sums.data(), DType::fp32, {kTokens, kHidden}));

  for (std::size_t i = 0; i < sums.size(); ++i) {
    float wanted = 0;
    for (std::size_t k = 0; k < kTopk; ++k) {
      const std::int32_t expert = ids[i / kHidden][k];
      if (expert >= 0) wanted += weights[i / kHidden][k] * (static_cast<float>(expert + 1) * x[i]);
    }
    if (sums[i] != wanted) return false;
  }
  return true;
}

int main() {
  bool right[kRanks] = {};
  std::vector<std::thread> threads;
  for (const moelane::World& world : moelane::World::threads(kRanks)) {
    threads.emplace_back([world, &right] {
      try {
        right[world.rank()] = play(world);
      } catch (const moelane::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::puts(right[0] && right[1] ? "all sums are right" : "failed");
  return right[0] && right[1] ? 0 : 1;
}
