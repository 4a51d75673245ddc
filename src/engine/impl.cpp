#include "engine/impl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/layout.hpp"

namespace moelane {

PlacementView view_of(const Placement& placement) {
  return {placement.rank_of().data(), placement.local_of().data(), placement.first().data(),
          placement.by_rank().data(), placement.fingerprint()};
}

const char* expected_call(Stage stage) {
  switch (stage) {
    case Stage::idle:
      return "dispatch or dispatch_send";
    case Stage::dispatch_sent:
      return "dispatch_recv";
    case Stage::dispatched:
      return "combine or combine_send";
    case Stage::combine_sent:
      return "combine_recv";
  }
  return "?";
}

Engine::Impl::Impl(World world_given, const Config& config_given, Placement placement_given)
    : world(std::move(world_given)), config(config_given), placement(std::move(placement_given)) {
  config.network = config.network || !world.impl().all_near();
  config.validate(world.size());
  check(placement);
  compare_with_peers();
  lanes.resize(static_cast<std::size_t>(config.in_flight));
  backend =
      (world.impl().on_gpu() ? make_gpu_backend : make_cpu_backend)(world.impl(), config, view_of(placement));
  device = backend->device();
  direct = shape_of(config, world.size(), world.rank()).direct;
}

void Engine::Impl::check(const Placement& table) const {
  if (table.experts() == config.experts && table.ranks() == world.size()) return;
  throw Error(ErrorKind::argument, fmt::format("placement is for {} experts on {} ranks, allowed is {} on {}",
                                               table.experts(), table.ranks(), config.experts, world.size()));
}

void Engine::Impl::compare_with_peers() {
  constexpr std::size_t kText = 1024;
  const std::string text =
      config.canonical() + fmt::format("placement={:016x}\nprotocol=1\n", placement.fingerprint());
  std::vector<char> mine(kText), all(kText * static_cast<std::size_t>(world.size()));
  std::memcpy(mine.data(), text.data(), std::min(text.size(), kText - 1));
  world.all_gather(mine.data(), kText, all.data());
  for (int peer = 0; peer < world.size(); ++peer) {
    all[static_cast<std::size_t>(peer + 1) * kText - 1] = 0;
    const std::string theirs(all.data() + static_cast<std::size_t>(peer) * kText);
    if (theirs == text) continue;
    std::size_t a = 0, b = 0;
    while (a < text.size() || b < theirs.size()) {
      const std::string ours_line = text.substr(a, text.find('\n', a) - a);
      const std::string theirs_line = theirs.substr(std::min(b, theirs.size()), theirs.find('\n', b) - b);
      if (ours_line != theirs_line) {
        throw Error(ErrorKind::mismatch, fmt::format("rank {} has {} and rank {} has {}, allowed is one "
                                                     "configuration for all ranks",
                                                     world.rank(), ours_line, peer, theirs_line));
      }
      a += ours_line.size() + 1;
      b += theirs_line.size() + 1;
    }
  }
}

Engine::Impl::LaneUse& Engine::Impl::begin(int lane, const char* call, Stage needed) {
  if (lane < 0 || lane >= config.in_flight) {
    throw Error(ErrorKind::argument,
                fmt::format("lane is {}, allowed are 0 to {}", lane, config.in_flight - 1));
  }
  if (!failed) hear_news();
  if (failed) {
    const std::lock_guard lock(mutex);
    throw Error(ErrorKind::aborted,
                fmt::format("{} on rank {} is refused, as the engine ended: {}", call, world.rank(), why));
  }
  LaneUse& use = lanes[static_cast<std::size_t>(lane)];
  if (use.stage != needed) {
    throw Error(ErrorKind::argument, fmt::format("{} on lane {} is out of order, allowed is {}", call, lane,
                                                 expected_call(use.stage)));
  }
  backend->begin_call(lane, config.timeout);
  return use;
}

void Engine::Impl::fail(const Report& report, const char* call, int lane, std::uint64_t step) {
  const std::uint64_t farewell = report.peer >= 0 ? backend->farewell_of(report.peer) : 0;
  Error error = error_of(report, {call, world.rank(), lane, step, config.timeout, farewell}, config);
  if (report.fault == Fault::aborted) {
    const std::lock_guard lock(mutex);
    error = Error(ErrorKind::aborted, std::string(error.what()) + "; " + why);
  }
  if (report.failed()) {
    end(error.what());
    const bool aborted = report.fault == Fault::aborted;
    backend->leave(aborted ? Leaving::aborted : Leaving::failed, aborted ? -1 : report.peer);
  }
  throw error;
}

void Engine::Impl::give_up(const Error& error) {
  end(error.what());
  backend->leave(Leaving::failed, -1);
}

void Engine::Impl::hear_news() {
  if (const auto news = backend->news()) fail(news->report, news->call, news->lane, news->step);
}

void Engine::Impl::end(const std::string& sentence) {
  const std::lock_guard lock(mutex);
  if (!failed) why = sentence;
  failed = true;
  world.impl().note_failure();
}

Input Engine::Impl::input_of(int lane, const char* call, const DispatchInput& in) {
  const Input view = check_input(config, in, device);
  const Report kept = backend->keep(lane, view);
  if (kept.fault != Fault::none)
    throw error_of(kept, {call, world.rank(), lane, 0, config.timeout, 0}, config);
  return view;
}

void Engine::Impl::symmetric(const char* name, int lane, const TensorView& tensor) const {
  check_symmetric(name, tensor, backend->symmetric(lane), config.symmetric_bytes);
}

void Engine::Impl::refuse_split(const char* call) const {
  if (config.way != Way::direct) return;
  throw Error(ErrorKind::argument,
              fmt::format("{} is refused with way direct, allowed are the whole calls; or set "
                          "way to auto or put",
                          call));
}

}  // namespace moelane
