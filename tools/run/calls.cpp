#include "run/calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "moelane/error.hpp"
#include "run/timing.hpp"

namespace moelane::tools {

std::vector<Call> dispatch_calls(bool split) {
  if (split) return {Call::dispatch_send, Call::dispatch_recv};
  return {Call::dispatch};
}

std::vector<Call> combine_calls(bool split) {
  if (split) return {Call::combine_send, Call::combine_recv};
  return {Call::combine};
}

Calls::Calls(Engine& engine, World& world, const Place& place, CallMode mode, Observer observer)
    : engine_(engine), world_(world), place_(place), mode_(mode), observer_(std::move(observer)) {
  if (observer_) engine_.set_trace([this](const TraceEvent& event) { take(event); });
  if (place_.card()) watch_.emplace();
}

Calls::~Calls() { engine_.set_trace(nullptr); }

void Calls::add(int lane, const StepBuffers& buffers, bool split) {
  Set& set = sets_.emplace_back(Set{lane, &buffers, {}});
  if (!place_.card() || !mode_.graphs) return;
  for (const auto& calls : {dispatch_calls(split), combine_calls(split)}) {
    for (const Call call : calls) {
      set.graphs[static_cast<std::size_t>(call)] =
          gpu::Graph::capture(place_.stream(), [&] { put_timed(call, set); });
    }
  }
  place_.finish();
}

void Calls::put(Call call, const Set& set) {
  const StepBuffers& b = *set.buffers;
  const bool late = mode_.graphs && mode_.late;
  const Stream stream = place_.stream();
  const auto result = [&] { return b.result(late ? b.out.host.shape[0] : b.in.tokens()); };
  switch (call) {
    case Call::dispatch:
      return engine_.dispatch(set.lane, b.in.view(late), b.output(), stream);
    case Call::dispatch_send:
      return engine_.dispatch_send(set.lane, b.in.view(late), stream);
    case Call::dispatch_recv:
      return engine_.dispatch_recv(set.lane, b.output(), stream);
    case Call::combine:
      return engine_.combine(set.lane, b.expert_rows.engine, result(), mode_.accumulate, stream);
    case Call::combine_send:
      return engine_.combine_send(set.lane, b.expert_rows.engine, stream);
    case Call::combine_recv:
      return engine_.combine_recv(set.lane, result(), mode_.accumulate, stream);
  }
}

void Calls::put_timed(Call call, const Set& set) {
  if (mode_.together) world_.barrier(place_.stream());
  if (mode_.events) watch_->start(place_.stream());
  put(call, set);
  if (mode_.events) watch_->stop(place_.stream());
}

Span Calls::make(Call call, int number) {
  const Set& set = sets_[static_cast<std::size_t>(number)];
  if (!place_.card()) {
    Span span{now_ns(), 0};
    put(call, set);
    span.end = now_ns();
    return span;
  }
  stamps_ = {std::numeric_limits<std::int64_t>::max(), 0};
  if (mode_.graphs) {
    set.graphs[static_cast<std::size_t>(call)].launch(place_.stream());
  } else {
    put_timed(call, set);
  }
  place_.finish();
  engine_.status();
  if (mode_.events) return {0, static_cast<std::int64_t>(watch_->us() * 1000)};
  if (stamps_.end < stamps_.begin) {
    throw Error(ErrorKind::transport,
                fmt::format("rank {}: a finished call has left no time stamps", engine_.rank()));
  }
  return stamps_;
}

double Calls::launch_us(Call call, int number) {
  const std::int64_t begin = now_ns();
  put(call, sets_[static_cast<std::size_t>(number)]);
  return static_cast<double>(now_ns() - begin) / 1000;
}

void Calls::take(const TraceEvent& event) {
  if (event.peer < 0) {
    stamps_.begin = std::min(stamps_.begin, event.begin_ns);
    stamps_.end = std::max(stamps_.end, event.end_ns);
  }
  observer_(event);
}

}  // namespace moelane::tools
