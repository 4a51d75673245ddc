#include "run/timed_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "moelane/error.hpp"
#include "run/timing.hpp"

namespace moelane::tools {

std::vector<EngineCall> dispatch_calls(bool split) {
  if (split) return {EngineCall::dispatch_send, EngineCall::dispatch_recv};
  return {EngineCall::dispatch};
}

std::vector<EngineCall> combine_calls(bool split) {
  if (split) return {EngineCall::combine_send, EngineCall::combine_recv};
  return {EngineCall::combine};
}

TimedCalls::TimedCalls(Engine& engine, World& world, const RankDevice& device, CallMode mode,
                       Observer observer)
    : engine_(engine), world_(world), device_(device), mode_(mode), observer_(std::move(observer)) {
  if (observer_) engine_.set_trace([this](const TraceEvent& event) { note(event); });
  if (device_.on_card()) watch_.emplace();
}

TimedCalls::~TimedCalls() { engine_.set_trace(nullptr); }

void TimedCalls::add(int lane, const StepBuffers& buffers, bool split) {
  Set& set = sets_.emplace_back(Set{lane, &buffers, {}});
  if (!device_.on_card() || !mode_.graphs) return;
  for (const auto& calls : {dispatch_calls(split), combine_calls(split)}) {
    for (const EngineCall call : calls) {
      set.graphs[static_cast<std::size_t>(call)] =
          gpu::Graph::capture(device_.stream(), [&] { enqueue_timed(call, set); });
    }
  }
  device_.synchronize();
}

void TimedCalls::enqueue(EngineCall call, const Set& set) {
  const StepBuffers& b = *set.buffers;
  const bool device_count = mode_.graphs && mode_.device_count;
  const Stream stream = device_.stream();
  const auto result = [&] { return b.result(device_count ? b.out.host.shape[0] : b.in.tokens()); };
  switch (call) {
    case EngineCall::dispatch:
      return engine_.dispatch(set.lane, b.in.view(device_count), b.output(), stream);
    case EngineCall::dispatch_send:
      return engine_.dispatch_send(set.lane, b.in.view(device_count), stream);
    case EngineCall::dispatch_recv:
      return engine_.dispatch_recv(set.lane, b.output(), stream);
    case EngineCall::combine:
      return engine_.combine(set.lane, b.expert_rows.engine, result(), mode_.accumulate, stream);
    case EngineCall::combine_send:
      return engine_.combine_send(set.lane, b.expert_rows.engine, stream);
    case EngineCall::combine_recv:
      return engine_.combine_recv(set.lane, result(), mode_.accumulate, stream);
  }
}

void TimedCalls::enqueue_timed(EngineCall call, const Set& set) {
  if (mode_.aligned_start) world_.barrier(device_.stream());
  if (mode_.events) watch_->start(device_.stream());
  enqueue(call, set);
  if (mode_.events) watch_->stop(device_.stream());
}

TimeSpan TimedCalls::run(EngineCall call, int number) {
  const Set& set = sets_[static_cast<std::size_t>(number)];
  if (!device_.on_card()) {
    TimeSpan span{now_ns(), 0};
    enqueue(call, set);
    span.end = now_ns();
    return span;
  }
  stamps_ = {std::numeric_limits<std::int64_t>::max(), 0};
  if (mode_.graphs) {
    set.graphs[static_cast<std::size_t>(call)].launch(device_.stream());
  } else {
    enqueue_timed(call, set);
  }
  device_.synchronize();
  engine_.status();
  if (mode_.events) return {0, static_cast<std::int64_t>(watch_->us() * 1000)};
  if (stamps_.end < stamps_.begin) {
    throw Error(ErrorKind::transport,
                fmt::format("rank {}: a finished call has left no time stamps", engine_.rank()));
  }
  return stamps_;
}

double TimedCalls::launch_us(EngineCall call, int number) {
  const std::int64_t begin = now_ns();
  enqueue(call, sets_[static_cast<std::size_t>(number)]);
  return static_cast<double>(now_ns() - begin) / 1000;
}

void TimedCalls::note(const TraceEvent& event) {
  if (event.peer < 0) {
    stamps_.begin = std::min(stamps_.begin, event.begin_ns);
    stamps_.end = std::max(stamps_.end, event.end_ns);
  }
  observer_(event);
}

}  // namespace moelane::tools
