#include "support/player.hpp"

#include <algorithm>
#include <thread>

namespace moelane::test {
namespace {

constexpr std::uint64_t kGarbage = tools::stream::first_free + 200;
constexpr int kStepsOnGpu = 10;

}  // namespace

Player::Player(Engine& engine, const Scene& scene, int lane)
    : engine_(engine),
      scene_(scene),
      lane_(lane),
      random_(scene.seed, static_cast<std::uint64_t>(engine.rank()), static_cast<std::uint64_t>(lane),
              kGarbage) {
  if (engine.device() == Device::cuda) {
    const int card = card_of(engine.rank());
    own_stream_ = borrow_stream(card);
    site_ = {Device::cuda, card, *own_stream_};
  }
  make_outputs();
}

void Player::nap() {
  if (scene_.nap <= 0) return;
  const auto seconds = random_.below(3) == 0 ? static_cast<double>(random_.unit()) * scene_.nap : 0.0;
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void Player::begin(int step) {
  step_ = step;
  table_ = scene_.table(step);
  experts_ = experts_of(table_, engine_.rank());
  groups_.clear();
  for (int g = 0; g < scene_.groups(); ++g) groups_.push_back(scene_.input(step, g));
  expected_ = tools::expected_dispatch(scene_.config, table_, engine_.rank(), groups_,
                                       scene_.capacity_of(engine_.rank()));
  dropped_.clear();
  if (scene_.capacity) {
    dropped_ = tools::dropped_rows(scene_.config, table_, group(), groups_, scene_.capacities());
  }
  make_input();
  poison_outputs();
}

bool Player::drops() const {
  for (const bool one : dropped_) {
    if (one) return true;
  }
  return false;
}

void Player::wait() const {
  if (own_stream_ != nullptr) own_stream_->synchronize();
}

void Player::finish() {
  wait();
  engine_.status();
}

void Player::expect(bool capacity_error, const char* name, const std::function<void()>& call) {
  const std::string where = "step " + std::to_string(step_) + ", lane " + std::to_string(lane_) + ", " + name;
  const auto made = [&] {
    if (scene_.graphs && own_stream_ != nullptr) {
      if (!graphs_.contains(name)) {
        graphs_[name] = gpu::Graph::capture(stream(), call);
        if (meet) meet();
      }
      graphs_[name].launch(stream());
    } else {
      call();
    }
    finish();
  };
  try {
    if (!capacity_error) return made();
    const std::string sentence = refusal(ErrorKind::capacity, made);
    require_words(sentence, {name, "step ", "invalid"});
  } catch (const Wrong& wrong) {
    throw Wrong(where + ": " + wrong.what());
  }
}

// An input is never written, and may be changed as soon as the call has returned (GPU ranks: is over).
void Player::check_input() {
  for (Guarded* t : {&x_in_, &scales_in_, &ids_in_, &weights_in_, &num_tokens_}) {
    t->check("an input");
    t->poison(random_);
    t->upload();
  }
}

void Player::dispatch_send() {
  nap();
  expect(false, "dispatch_send", [&] { engine_.dispatch_send(lane_, in_, stream()); });
  check_input();
}

void Player::dispatch_recv() {
  nap();
  expect(expected_.overflow, "dispatch_recv", [&] { engine_.dispatch_recv(lane_, out_, stream()); });
  check_dispatch();
}

void Player::dispatch() {
  nap();
  expect(expected_.overflow, "dispatch", [&] { engine_.dispatch(lane_, in_, out_, stream()); });
  check_input();
  check_dispatch();
}

void Player::prepare_combine() {
  answer();
  make_combined();
}

void Player::combine_send() {
  prepare_combine();
  nap();
  expect(false, "combine_send", [&] { engine_.combine_send(lane_, rows_.view(), stream()); });
  rows_.check("expert_rows");
  rows_.poison(random_);  // sent away
  rows_.upload();
}

void Player::combine_recv() {
  nap();
  expect(drops(), "combine_recv",
         [&] { engine_.combine_recv(lane_, combined_.view(), scene_.accumulate, stream()); });
  check_combine();
}

void Player::combine() {
  prepare_combine();
  nap();
  expect(drops(), "combine",
         [&] { engine_.combine(lane_, rows_.view(), combined_.view(), scene_.accumulate, stream()); });
  rows_.check("expert_rows");
  check_combine();
}

std::vector<std::byte> Player::bytes() const {
  std::vector<std::byte> all;
  for (const Guarded* t : {&x_, &scales_, &counts_, &offsets_, &row_count_, &ids_, &weights_, &combined_}) {
    all.insert(all.end(), t->bytes().begin(), t->bytes().end());
  }
  return all;
}

void Player::play(int step) {
  begin(step);
  if (scene_.calls_of(step, true) == Calls::whole) {
    dispatch();
  } else {
    dispatch_send();
    dispatch_recv();
  }
  if (scene_.calls_of(step, false) == Calls::whole) {
    combine();
  } else {
    combine_send();
    combine_recv();
  }
}

void perform(World world, const Scene& scene, int steps) {
  const auto placement = [&](int step) { return Placement::table(scene.table(step), scene.ranks); };
  Engine engine(world, scene.config, placement(0));
  std::vector<Player> players;
  players.reserve(static_cast<std::size_t>(scene.config.in_flight));
  for (int lane = 0; lane < scene.config.in_flight; ++lane) {
    players.emplace_back(engine, scene, lane);
    players.back().meet = [&world] { world.barrier(); };
  }
  for (int step = 0; step < steps; ++step) {
    if (scene.tables.size() > 1) engine.set_placement(placement(step));
    players[static_cast<std::size_t>(step % scene.config.in_flight)].play(step);
  }
}

std::string run(const Scene& scene, int steps, Home home) {
  Scene ready = scene;
  ready.reserve();
  if (on_gpu() && !scene.all_steps) steps = std::min(steps, kStepsOnGpu);
  return complaints(
      play(home, ready.ranks, 30, [&](World world) { perform(std::move(world), ready, steps); }));
}

}  // namespace moelane::test
