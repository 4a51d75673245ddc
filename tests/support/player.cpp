#include "support/player.hpp"

#include <cstring>
#include <thread>

#include "toy_expert.hpp"

namespace moelane::test {
namespace {

constexpr std::uint64_t kGarbage = tools::stream::first_free + 200;

void put_bytes(std::byte* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

Player::Player(Engine& engine, const Scene& scene, int lane)
    : engine_(engine),
      scene_(scene),
      lane_(lane),
      random_(scene.seed, static_cast<std::uint64_t>(engine.rank()), static_cast<std::uint64_t>(lane),
              kGarbage) {
  make_outputs();
}

void Player::make_outputs() {
  const bool symmetric = engine_.direct();
  const Scene::Outputs specs = scene_.outputs(engine_.rank(), symmetric);
  const auto make = [&](const Spec& spec) {
    if (!symmetric) return Guarded(spec);
    const TensorView view = engine_.allocate(lane_, DType::uint8, {static_cast<std::int64_t>(spec.bytes())});
    return Guarded(spec, static_cast<std::byte*>(view.data));
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
  counts_ = Guarded(Spec::dense(DType::int32, {most}));
  out_.x = x_.view();
  out_.scales = scales_.view();
  out_.expert_counts = counts_.view();
  if (c.layout == Layout::contiguous) {
    offsets_ = Guarded(Spec::dense(DType::int32, {most + 1}));
    out_.expert_offsets = offsets_.view();
  }
  if (c.layout == Layout::ranked) {
    row_count_ = Guarded(Spec::dense(DType::int32, {1}));
    out_.row_count = row_count_.view();
    out_.topk_ids = ids_.view();
    out_.topk_weights = weights_.view();
  }
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
  x_in_ = Guarded(x);
  scales_in_ = Guarded(scales);
  ids_in_ = Guarded(ids);
  weights_in_ = Guarded(weights);
  num_tokens_ = Guarded(Spec::dense(DType::int32, {1}));
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
  if (scene_.num_tokens) in_.num_tokens = reinterpret_cast<const std::int32_t*>(num_tokens_.at(0));
  for (Guarded* t : {&x_in_, &scales_in_, &ids_in_, &weights_in_, &num_tokens_}) t->accept();
}

void Player::poison_outputs() {
  for (Guarded* t : {&x_, &scales_, &counts_, &offsets_, &row_count_, &ids_, &weights_}) t->poison(random_);
}

void Player::expect(bool capacity_error, const char* call, const std::function<void()>& action) {
  const std::string where = "step " + std::to_string(step_) + ", lane " + std::to_string(lane_) + ", " + call;
  try {
    if (!capacity_error) return action();
    const std::string sentence = refusal(ErrorKind::capacity, action);
    require_words(sentence, {call, "step ", "invalid"});
  } catch (const Wrong& wrong) {
    throw Wrong(where + ": " + wrong.what());
  }
}

// An input is never written, and may be changed as soon as the call has returned.
void Player::check_input() {
  for (Guarded* t : {&x_in_, &scales_in_, &ids_in_, &weights_in_, &num_tokens_}) {
    t->check("an input");
    t->poison(random_);
  }
}

void Player::dispatch_send() {
  nap();
  expect(false, "dispatch_send", [&] { engine_.dispatch_send(lane_, in_); });
  check_input();
}

void Player::dispatch_recv() {
  nap();
  expect(expected_.overflow, "dispatch_recv", [&] { engine_.dispatch_recv(lane_, out_); });
  check_dispatch();
}

void Player::dispatch() {
  nap();
  expect(expected_.overflow, "dispatch", [&] { engine_.dispatch(lane_, in_, out_); });
  check_input();
  check_dispatch();
}

void Player::combine_send() {
  answer();
  begin_combine();
  nap();
  expect(false, "combine_send", [&] { engine_.combine_send(lane_, rows_.view()); });
  rows_.check("expert_rows");
  rows_.poison(random_);  // sent away
}

void Player::combine_recv() {
  nap();
  expect(drops(), "combine_recv", [&] { engine_.combine_recv(lane_, combined_.view(), scene_.accumulate); });
  check_combine();
}

void Player::combine() {
  answer();
  begin_combine();
  nap();
  expect(drops(), "combine",
         [&] { engine_.combine(lane_, rows_.view(), combined_.view(), scene_.accumulate); });
  rows_.check("expert_rows");
  check_combine();
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
  Engine engine(std::move(world), scene.config, placement(0));
  std::vector<Player> players;
  players.reserve(static_cast<std::size_t>(scene.config.in_flight));
  for (int lane = 0; lane < scene.config.in_flight; ++lane) players.emplace_back(engine, scene, lane);
  for (int step = 0; step < steps; ++step) {
    if (scene.tables.size() > 1) engine.set_placement(placement(step));
    players[static_cast<std::size_t>(step % scene.config.in_flight)].play(step);
  }
}

std::string run(const Scene& scene, int steps, Home home) {
  Scene ready = scene;
  ready.reserve();
  return complaints(
      play(home, ready.ranks, 30, [&](World world) { perform(std::move(world), ready, steps); }));
}

}  // namespace moelane::test
