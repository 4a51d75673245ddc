#include "moelane/engine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/impl.hpp"

namespace moelane {
namespace {

// A hash of where a symmetric tensor lies in the heap; equal on two ranks when offset and strides are.
std::uint64_t mix(std::uint64_t hash, std::int64_t value) {
  hash ^= static_cast<std::uint64_t>(value) + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdULL;
  return hash ^ hash >> 32;
}
std::uint64_t print_of(const ExpertRows& rows, const std::byte* heap) {
  std::uint64_t hash = mix(1, rows.base == nullptr ? -1 : rows.base - heap);
  return mix(mix(mix(hash, rows.expert_stride), rows.row_stride), rows.column_stride);
}
std::uint64_t print_of(const MatrixView& rows, const std::byte* heap) {
  return print_of(ExpertRows{rows.base, 0, rows.row_stride, rows.column_stride}, heap);
}
std::uint64_t print_of(const Output& out, const std::byte* heap) {
  std::uint64_t hash = mix(mix(2, out.capacity), static_cast<std::int64_t>(print_of(out.x, heap)));
  for (const std::uint64_t part :
       {print_of(out.scales, heap), print_of(out.ids, heap), print_of(out.weights, heap)}) {
    hash = mix(hash, static_cast<std::int64_t>(part));
  }
  return hash;
}

}  // namespace

Engine::Engine(World world, const Config& config)
    : Engine(world, config, (config.validate(world.size()), Placement::even(config.experts, world.size()))) {}

Engine::Engine(World world, const Config& config, Placement placement)
    : impl_(std::make_unique<Impl>(std::move(world), config, std::move(placement))) {}

Engine::~Engine() {
  if (impl_ != nullptr) impl_->backend->leave(Leaving::closed, -1);
}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&& other) noexcept {
  if (impl_ != nullptr && impl_ != other.impl_) impl_->backend->leave(Leaving::closed, -1);
  impl_ = std::move(other.impl_);
  return *this;
}

void Engine::dispatch_send(int lane, const DispatchInput& in, Stream stream) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "dispatch_send", Stage::idle);
  self.refuse_split("dispatch_send");
  const Input view = self.input_of(lane, "dispatch_send", in);
  self.run(
      lane, "dispatch_send", self.backend->epoch(lane) + 1,
      [&] { return self.backend->dispatch_send(lane, view, stream); },
      [&] { use.stage = Stage::dispatch_sent; });
}

void Engine::dispatch_recv(int lane, const DispatchOutput& out, Stream stream) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "dispatch_recv", Stage::dispatch_sent);
  const Output view = check_output(self.config, self.placement.local_experts(rank()), out, self.device);
  self.run(
      lane, "dispatch_recv", self.backend->epoch(lane) + 1,
      [&] { return self.backend->dispatch_recv(lane, view, stream); },
      [&] {
        use = {Stage::dispatched, false, view.capacity, use.allocated};
      });
}

void Engine::combine_send(int lane, const TensorView& expert_rows, Stream stream) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "combine_send", Stage::dispatched);
  if (use.direct) {
    throw Error(ErrorKind::argument,
                fmt::format("combine_send on lane {} is refused, as its dispatch was whole and "
                            "took the direct way, allowed is combine; or set way to put",
                            lane));
  }
  const ExpertRows rows = check_expert_rows(self.config, self.placement.local_experts(rank()), use.capacity,
                                            expert_rows, self.device);
  self.run(
      lane, "combine_send", self.backend->epoch(lane),
      [&] { return self.backend->combine_send(lane, rows, 0, stream); },
      [&] { use.stage = Stage::combine_sent; });
}

void Engine::combine_recv(int lane, const TensorView& out, bool accumulate, Stream stream) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "combine_recv", Stage::combine_sent);
  const CombineOutput view =
      check_combine_output(self.config, out, self.backend->tokens(lane), accumulate, self.device);
  self.run(
      lane, "combine_recv", self.backend->epoch(lane),
      [&] { return self.backend->combine_recv(lane, view, 0, stream); }, [&] { use.stage = Stage::idle; });
}

void Engine::dispatch(int lane, const DispatchInput& in, const DispatchOutput& out, Stream stream) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "dispatch", Stage::idle);
  const Output view = check_output(self.config, self.placement.local_experts(rank()), out, self.device);
  const auto done = [&](bool direct) {
    return [&use, &view, direct] { use = {Stage::dispatched, direct, view.capacity, use.allocated}; };
  };
  if (self.direct) {
    self.symmetric("x", lane, out.x);
    if (out.scales) self.symmetric("scales", lane, out.scales);
    if (out.topk_ids) self.symmetric("topk_ids", lane, out.topk_ids);
    if (out.topk_weights) self.symmetric("topk_weights", lane, out.topk_weights);
  }
  const Input input = self.input_of(lane, "dispatch", in);
  const std::uint64_t step = self.backend->epoch(lane) + 1;
  if (self.direct) {
    const std::uint64_t print = print_of(view, self.backend->heap());
    self.run(
        lane, "dispatch", step,
        [&] { return self.backend->dispatch_direct(lane, input, view, print, stream); }, done(true));
    return;
  }
  self.run(
      lane, "dispatch_send", step, [&] { return self.backend->dispatch_send(lane, input, stream); },
      [&] { use.stage = Stage::dispatch_sent; });
  self.run(
      lane, "dispatch_recv", step, [&] { return self.backend->dispatch_recv(lane, view, stream); },
      done(false));
}

void Engine::combine(int lane, const TensorView& expert_rows, const TensorView& out, bool accumulate,
                     Stream stream) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "combine", Stage::dispatched);
  const ExpertRows rows = check_expert_rows(self.config, self.placement.local_experts(rank()), use.capacity,
                                            expert_rows, self.device);
  const CombineOutput view =
      check_combine_output(self.config, out, self.backend->tokens(lane), accumulate, self.device);
  const std::uint64_t step = self.backend->epoch(lane);
  const auto done = [&] { use.stage = Stage::idle; };
  if (use.direct) {
    self.symmetric("expert_rows", lane, expert_rows);
    const std::uint64_t print = print_of(rows, self.backend->heap());
    self.run(
        lane, "combine", step, [&] { return self.backend->combine_direct(lane, rows, view, print, stream); },
        done);
    return;
  }
  self.run(
      lane, "combine_send", step, [&] { return self.backend->combine_send(lane, rows, 0, stream); },
      [&] { use.stage = Stage::combine_sent; });
  self.run(
      lane, "combine_recv", step, [&] { return self.backend->combine_recv(lane, view, 0, stream); }, done);
}

TensorView Engine::allocate(int lane, DType dtype, std::initializer_list<std::int64_t> shape) {
  Impl& self = *impl_;
  if (lane < 0 || lane >= self.config.in_flight) {
    throw Error(ErrorKind::argument,
                fmt::format("lane is {}, allowed are 0 to {}", lane, self.config.in_flight - 1));
  }
  std::uint64_t bytes = size_of(dtype);
  if (shape.size() < 1 || shape.size() > 4) {
    throw Error(ErrorKind::argument,
                fmt::format("shape has {} dimensions, allowed are 1 to 4", shape.size()));
  }
  for (const std::int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && bytes > (std::uint64_t{1} << 42) / static_cast<std::uint64_t>(extent))) {
      throw Error(ErrorKind::argument,
                  fmt::format("shape has an extent of {}, allowed is what symmetric_bytes = {} "
                              "hold",
                              extent, self.config.symmetric_bytes));
    }
    bytes *= static_cast<std::uint64_t>(extent);
  }
  std::size_t& used = self.lanes[static_cast<std::size_t>(lane)].allocated;
  const std::size_t begin = (used + 255) / 256 * 256;
  if (begin > self.config.symmetric_bytes || bytes > self.config.symmetric_bytes - begin) {
    throw Error(
        ErrorKind::argument,
        fmt::format("symmetric_bytes is {}, of which lane {} has {} left, allowed is at least the {} bytes "
                    "asked for",
                    self.config.symmetric_bytes, lane,
                    self.config.symmetric_bytes - std::min(begin, self.config.symmetric_bytes), bytes));
  }
  used = begin + bytes;
  return TensorView::dense(self.backend->symmetric(lane) + begin, dtype, shape, self.device);
}

void Engine::set_placement(Placement placement) {
  Impl& self = *impl_;
  self.check(placement);
  for (std::size_t lane = 0; lane < self.lanes.size(); ++lane) {
    if (self.lanes[lane].stage != Stage::idle) {
      throw Error(ErrorKind::argument,
                  fmt::format("set_placement is refused while lane {} is within a step, allowed "
                              "is {} first",
                              lane, expected_call(self.lanes[lane].stage)));
    }
  }
  self.placement = std::move(placement);
  self.backend->set_placement(view_of(self.placement));
}

void Engine::abort(const std::string& reason) {
  impl_->end("abort: " + reason);
  // The own waits first: a peer that is told fails over this rank, which a wait here would take for the
  // reason.
  impl_->backend->abort_waits();
  impl_->backend->leave(Leaving::aborted, -1);
}

void Engine::status() {
  if (impl_->trace) impl_->backend->tell_stamps(impl_->trace);
  impl_->hear_news();
}

const Placement& Engine::placement() const { return impl_->placement; }
bool Engine::healthy() const { return !impl_->failed; }
const Config& Engine::config() const { return impl_->config; }
int Engine::rank() const { return impl_->world.rank(); }
int Engine::ranks() const { return impl_->world.size(); }
Device Engine::device() const { return impl_->device; }
bool Engine::direct() const { return impl_->direct; }
std::size_t Engine::mapped_bytes() const { return impl_->backend->mapped_bytes(); }
std::uint64_t Engine::late_wakes() const { return impl_->backend->late_wakes(); }
void Engine::set_trace(std::function<void(const TraceEvent&)> sink) {
  impl_->trace = std::move(sink);
  impl_->backend->stamp(static_cast<bool>(impl_->trace));
}

}  // namespace moelane
