#include "gpu/chain.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "support/gpu_ranks.hpp"

namespace moelane::test {
namespace {

constexpr std::uint64_t kGarbage = tools::stream::first_free + 300, kWeights = kGarbage + 1;
constexpr int kMostTokens = 40;

// Rows of bf16, so that what comes back can go out again. Weights add up to about 1, so that rows stay
// finite.
Scene chain_scene(const Scene& on_path, int calls_of_a_rank) {
  Scene s = on_path;
  s.config.hidden = 40;
  s.config.max_tokens = kMostTokens;
  s.config.timeout = 20;
  s.habits.nothing = 0;
  s.tokens = [](int, int group) { return group == 1 ? 0 : kMostTokens - 3 * group; };
  if (on_gpu()) s.config.num_sms = share_of_card(s.ranks, calls_of_a_rank);
  s.reserve();
  return s;
}

}  // namespace

Chain::Chain(Engine& engine, const Scene& scene, int lane, const Site& site)
    : engine_(engine),
      scene_(scene),
      site_(site),
      lane_(lane),
      random_(scene.seed, static_cast<std::uint64_t>(engine.rank()), static_cast<std::uint64_t>(lane),
              kGarbage) {
  const Config& c = scene.config;
  const Scene::Outputs specs = scene.outputs(engine.rank(), engine.direct());
  const std::int64_t most = scene.most_local_experts();
  const int group = engine.rank() / c.tp_size;
  const std::int64_t m = scene.tokens_of(0, group);
  const TensorView x = written(Spec::dense(c.dtype, {m, c.hidden}), false);
  const tools::GroupStep first = scene.input(0, group);
  put_bytes(written_[0].elements(), first.x.data(), first.x.size());
  written_[0].upload();
  out_.x = written(specs.x, true);
  out_.expert_counts = written(Spec::dense(DType::int32, {most}), false);
  if (c.layout == Layout::contiguous) {
    out_.expert_offsets = written(Spec::dense(DType::int32, {most + 1}), false);
  }
  if (c.layout == Layout::ranked) {
    out_.row_count = written(Spec::dense(DType::int32, {1}), false);
    out_.topk_ids = written(specs.ids, true);
    out_.topk_weights = written(specs.weights, true);
  }
  for (int n = 0; n < kRoutings; ++n) {
    const tools::GroupStep routed = scene.input(n, group);
    tools::Random random(scene.seed, static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(group),
                         kWeights);
    std::vector<float> weights(routed.weights.size());
    for (float& weight : weights) weight = (0.7F + 0.6F * random.unit()) / static_cast<float>(c.topk);
    DispatchInput in;
    in.x = x;
    in.topk_ids = read(Spec::dense(DType::int32, {m, c.topk}), routed.ids.data(), routed.ids.size() * 4);
    in.topk_weights = read(Spec::dense(DType::fp32, {m, c.topk}), weights.data(), weights.size() * 4);
    in_.push_back(in);
  }
}

TensorView Chain::written(const Spec& spec, bool symmetric) {
  std::byte* memory = nullptr;
  if (symmetric && engine_.direct()) {
    const auto bytes = static_cast<std::int64_t>(spec.bytes());
    memory = static_cast<std::byte*>(engine_.allocate(lane_, DType::uint8, {bytes}).data);
  }
  written_.emplace_back(spec, site_, memory);
  written_.back().poison(random_);
  written_.back().upload();
  return written_.back().view();
}

TensorView Chain::read(const Spec& spec, const void* from, std::size_t bytes) {
  read_.emplace_back(spec, site_);
  put_bytes(read_.back().elements(), from, bytes);
  read_.back().upload();
  return read_.back().view();
}

void Chain::play(int step, int part) {
  const bool whole = scene_.calls_of(step, part < 2) == Calls::whole;
  const DispatchInput& in = in_[static_cast<std::size_t>(step % kRoutings)];
  switch (part) {
    case 0:
      return whole ? engine_.dispatch(lane_, in, out_, stream()) : engine_.dispatch_send(lane_, in, stream());
    case 1:
      return whole ? void() : engine_.dispatch_recv(lane_, out_, stream());
    case 2:
      return whole ? engine_.combine(lane_, out_.x, in.x, false, stream())
                   : engine_.combine_send(lane_, out_.x, stream());
    default:
      return whole ? void() : engine_.combine_recv(lane_, in.x, false, stream());
  }
}

std::vector<std::byte> Chain::bytes() {
  std::vector<std::byte> all;
  for (Guarded& tensor : written_) {
    tensor.download();
    all.insert(all.end(), tensor.bytes().begin(), tensor.bytes().end());
  }
  return all;
}

std::vector<std::vector<std::byte>> chained(Processor processor, const Scene& on_path, int engines, int lanes,
                                            const std::function<void(std::vector<Chain>&)>& play_on) {
  Scene scene = on_path;
  scene.config.in_flight = lanes;
  scene = chain_scene(scene, engines * lanes);
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(scene.ranks));
  const auto part = [&](World world) {
    const int card = card_of(world.rank());
    std::vector<std::shared_ptr<const gpu::OwnStream>> streams;
    std::deque<Engine> made;
    std::vector<Chain> chains;
    chains.reserve(static_cast<std::size_t>(engines * lanes));
    for (int e = 0; e < engines; ++e) made.emplace_back(world, scene.config);
    for (Engine& engine : made) {
      for (int lane = 0; lane < lanes; ++lane) {
        Site site;
        if (processor == Processor::gpu) {
          streams.push_back(borrow_stream(card));
          site = {Device::cuda, card, *streams.back()};
        }
        chains.emplace_back(engine, scene, lane, site);
        chains.back().meet = [&world] { world.barrier(); };
      }
    }
    world.barrier();
    play_on(chains);
    for (const auto& stream : streams) stream->synchronize();
    for (Engine& engine : made) engine.status();
    for (Chain& chain : chains) {
      const std::vector<std::byte> bytes = chain.bytes();
      auto& mine = all[static_cast<std::size_t>(world.rank())];
      mine.insert(mine.end(), bytes.begin(), bytes.end());
    }
  };
  EXPECT_EQ(complaints(play(Home::threads, scene.ranks, 30, part, processor)), "");
  return all;
}

}  // namespace moelane::test
