#include <gtest/gtest.h>

#include "cuda/device.hpp"
#include "support/spoil.hpp"

// What is refused in words before anything reaches a card.
namespace moelane::test {
namespace {

// Every tensor of every call, on the wrong side.
void expect_elsewhere_refused(Processor processor, const Scene& scene) {
  Scene s = spoiled_scene(scene);
  s.reserve();
  const bool cpu = processor == Processor::cpu;
  const Device elsewhere = cpu ? Device::cuda : Device::cpu;
  const std::string words = cpu ? ".device is cuda, allowed is cpu in a world of CPU ranks"
                                : ".device is cpu, allowed is cuda in a world of GPU ranks";
  const auto part = [&](World world) {
    Engine engine(std::move(world), s.config);
    require(engine.device() == (cpu ? Device::cpu : Device::cuda), "the engine says where its tensors lie");
    Player player(engine, s, 0);
    player.begin(0);
    const bool split = s.calls == Calls::split;
    DispatchInput in = player.input();
    DispatchOutput out = player.output();
    const auto moved = [&](const char* name, TensorView& view, const std::function<void()>& call) {
      if (!view) return;
      const TensorView right = view;
      view.device = elsewhere;
      require_words(refusal(ErrorKind::argument, call), {name + words});
      view = right;
    };
    const auto give = [&] { split ? engine.dispatch_send(0, in) : engine.dispatch(0, in, out); };
    const auto take = [&] { split ? engine.dispatch_recv(0, out) : engine.dispatch(0, in, out); };
    moved("x", in.x, give);
    moved("scales", in.scales, give);
    moved("topk_ids", in.topk_ids, give);
    moved("topk_weights", in.topk_weights, give);
    if (split) player.dispatch_send();
    moved("x", out.x, take);
    moved("scales", out.scales, take);
    moved("expert_counts", out.expert_counts, take);
    moved("expert_offsets", out.expert_offsets, take);
    moved("row_count", out.row_count, take);
    moved("topk_ids", out.topk_ids, take);
    moved("topk_weights", out.topk_weights, take);
    split ? player.dispatch_recv() : player.dispatch();
    player.prepare_combine();
    TensorView rows = player.rows(), combined = player.combined();
    moved("expert_rows", rows,
          [&] { split ? engine.combine_send(0, rows) : engine.combine(0, rows, combined); });
    if (split) player.combine_send();
    moved("out", combined,
          [&] { split ? engine.combine_recv(0, combined) : engine.combine(0, rows, combined); });
    split ? player.combine_recv() : player.combine();
  };
  EXPECT_EQ(complaints(play(Home::threads, s.ranks, 20, part, processor)), "");
}

TEST(Refusals, TensorsOnTheWrongSide) {
  for (const auto& [layout, path] : cases()) {
    if (path.calls == Calls::mixed) continue;
    expect_elsewhere_refused(Processor::cpu, scene_on(path, layout));
    if (on_gpu()) expect_elsewhere_refused(Processor::gpu, scene_on(path, layout));
  }
}

std::string refused(ErrorKind kind, const std::function<void()>& call) {
  try {
    return refusal(kind, call);
  } catch (const Wrong& wrong) {
    return wrong.what();
  }
}

TEST(Refusals, OfWorlds) {
  MOELANE_SKIP_ON_CPU("they are of worlds of GPU ranks");
  World world = seated(World::threads(1).front());
  EXPECT_EQ(world.transport(), "peer");
  EXPECT_EQ(refused(ErrorKind::argument, [&] { World::peer(world); }),
            "meeting is a world of transport peer, allowed is one of threads or shm");
  for (const int device : {-2, machine().cards, 1 << 20}) {
    const std::string sentence =
        refused(ErrorKind::transport, [&] { World::peer(World::threads(1).front(), device); });
    EXPECT_NE(sentence.find("device is " + std::to_string(device) + ", allowed are 0 to " +
                            std::to_string(machine().cards - 1)),
              std::string::npos)
        << sentence;
  }
  // What one rank cannot do, none can, and all say the same.
  const std::vector<Ending> endings = play(
      Home::threads, 3, 20, [](World meeting) { World::peer(meeting, meeting.rank() == 1 ? 1 << 20 : 0); },
      Processor::cpu);
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.kind, ErrorKind::transport);
    EXPECT_EQ(ending.sentence, endings[0].sentence);
    EXPECT_NE(ending.sentence.find("rank 1 "), std::string::npos) << ending.sentence;
  }
}

TEST(Refusals, OfPutsToWhatCanBeAddressed) {
  MOELANE_SKIP_ON_CPU("they send by puts when told");
  Config config;
  config.experts = config.topk = config.hidden = config.max_tokens = 1;
  config.force_puts = true;
  const std::string sentence =
      refused(ErrorKind::argument, [&] { Engine(seated(World::threads(1).front()), config); });
  EXPECT_NE(sentence.find("force_puts is true, allowed with transport peer is false"), std::string::npos)
      << sentence;
}

}  // namespace
}  // namespace moelane::test
