#include "moelane/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/layout.hpp"
#include "engine/backend.hpp"
#include "engine/checks.hpp"
#include "engine/sentences.hpp"

namespace moelane {
namespace {

PlacementView view_of(const Placement& placement) {
  return {placement.rank_of().data(), placement.local_of().data(), placement.first().data(),
          placement.by_rank().data(), placement.fingerprint()};
}

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
  for (const std::uint64_t part : {print_of(out.scales, heap), print_of(out.ids, heap), print_of(out.weights, heap)}) {
    hash = mix(hash, static_cast<std::int64_t>(part));
  }
  return hash;
}

// What a lane expects next.
enum class Stage { idle, dispatch_sent, dispatched, combine_sent };

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

}  // namespace

class Engine::Impl {
 public:
  struct LaneUse {
    Stage stage = Stage::idle;
    bool direct = false;        // the way of the lane's last dispatch
    std::int32_t capacity = 0;  // of its output
    std::size_t allocated = 0;
  };

  Impl(World world_given, const Config& config_given, Placement placement_given)
      : world(std::move(world_given)), config(config_given), placement(std::move(placement_given)) {
    config.validate(world.size());
    check(placement);
    compare_with_peers();
    lanes.resize(static_cast<std::size_t>(config.in_flight));
    backend = make_cpu_backend(world.impl(), config, view_of(placement));
    direct = shape_of(config, world.size(), world.rank()).direct;
  }

  void check(const Placement& table) const {
    if (table.experts() == config.experts && table.ranks() == world.size()) return;
    throw Error(ErrorKind::argument, fmt::format("placement is for {} experts on {} ranks, allowed is {} on {}",
                                                 table.experts(), table.ranks(), config.experts, world.size()));
  }

  void compare_with_peers() {
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

  LaneUse& begin(int lane, const char* call, Stage needed) {
    if (lane < 0 || lane >= config.in_flight) {
      throw Error(ErrorKind::argument,
                  fmt::format("lane is {}, allowed are 0 to {}", lane, config.in_flight - 1));
    }
    if (failed) {
      const std::lock_guard lock(mutex);
      throw Error(ErrorKind::aborted, fmt::format("{} on rank {} is refused, as the engine ended: {}", call,
                                                  world.rank(), why));
    }
    LaneUse& use = lanes[static_cast<std::size_t>(lane)];
    if (use.stage != needed) {
      throw Error(ErrorKind::argument, fmt::format("{} on lane {} is out of order, allowed is {}", call, lane,
                                                   expected_call(use.stage)));
    }
    backend->begin_call(lane, config.timeout);
    return use;
  }

  void fail(const std::string& sentence, Leaving leaving, int blamed) {
    {
      const std::lock_guard lock(mutex);
      if (!failed) why = sentence;
      failed = true;
    }
    backend->leave(leaving, blamed);
  }

  // Runs one phase, passes it to the trace, and turns what it reports into an exception. `after` runs when the call
  // has done its duty, also when the step is invalid.
  template <class Body, class After>
  void run(int lane, const char* call, std::uint64_t step, const Body& body, const After& after) {
    std::int64_t begin_ns = 0;
    WaitContext context{this, lane, step, call};
    if (trace) {
      begin_ns = now_ns();
      backend->observe_waits(lane, &Impl::on_wait, &context);
    }
    const Report report = body();
    if (trace) {
      backend->observe_waits(lane, nullptr, nullptr);
      trace({call, lane, step, -1, begin_ns, now_ns(), report.bytes});
    }
    if (report.fault == Fault::none || !report.failed()) after();
    if (report.fault == Fault::none) return;
    const std::uint64_t farewell = report.peer >= 0 ? backend->farewell_of(report.peer) : 0;
    Error error = error_of(report, {call, world.rank(), lane, step, config.timeout, farewell}, config);
    if (report.fault == Fault::aborted) {
      const std::lock_guard lock(mutex);
      error = Error(ErrorKind::aborted, std::string(error.what()) + "; " + why);
    }
    if (report.failed() && report.fault != Fault::bad_id) fail(error.what(), Leaving::failed, report.peer);
    throw error;
  }

  struct WaitContext {
    Impl* self;
    int lane;
    std::uint64_t step;
    const char* call;
  };
  static void on_wait(void* context, int peer, std::int64_t begin_ns, std::int64_t end_ns) {
    const auto* c = static_cast<const WaitContext*>(context);
    c->self->trace({"wait", c->lane, c->step, peer, begin_ns, end_ns, 0});
  }

  Input input_of(int lane, const char* call, const DispatchInput& in) {
    const Input view = check_input(config, in);
    const Report kept = backend->keep(lane, view);
    if (kept.fault != Fault::none) throw error_of(kept, {call, world.rank(), lane, 0, config.timeout, 0}, config);
    return view;
  }

  void symmetric(const char* name, int lane, const TensorView& tensor) const {
    check_symmetric(name, tensor, backend->symmetric(lane), config.symmetric_bytes);
  }

  void refuse_split(const char* call) const {
    if (config.way != Way::direct) return;
    throw Error(ErrorKind::argument, fmt::format("{} is refused with way direct, allowed are the whole calls; or set "
                                                 "way to auto or put",
                                                 call));
  }

  World world;
  Config config;
  Placement placement;
  std::unique_ptr<Backend> backend;
  std::vector<LaneUse> lanes;
  std::function<void(const TraceEvent&)> trace;
  bool direct = false;
  std::atomic<bool> failed{false};
  std::mutex mutex;  // why
  std::string why;
};

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

void Engine::dispatch_send(int lane, const DispatchInput& in) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "dispatch_send", Stage::idle);
  self.refuse_split("dispatch_send");
  const Input view = self.input_of(lane, "dispatch_send", in);
  self.run(lane, "dispatch_send", self.backend->epoch(lane) + 1,
           [&] { return self.backend->dispatch_send(lane, view); }, [&] { use.stage = Stage::dispatch_sent; });
}

void Engine::dispatch_recv(int lane, const DispatchOutput& out) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "dispatch_recv", Stage::dispatch_sent);
  const Output view = check_output(self.config, self.placement.local_experts(rank()), out);
  self.run(lane, "dispatch_recv", self.backend->epoch(lane) + 1,
           [&] { return self.backend->dispatch_recv(lane, view); },
           [&] { use = {Stage::dispatched, false, view.capacity, use.allocated}; });
}

void Engine::combine_send(int lane, const TensorView& expert_rows) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "combine_send", Stage::dispatched);
  if (use.direct) {
    throw Error(ErrorKind::argument, fmt::format("combine_send on lane {} is refused, as its dispatch was whole and "
                                                 "took the direct way, allowed is combine; or set way to put",
                                                 lane));
  }
  const ExpertRows rows =
      check_expert_rows(self.config, self.placement.local_experts(rank()), use.capacity, expert_rows);
  self.run(lane, "combine_send", self.backend->epoch(lane), [&] { return self.backend->combine_send(lane, rows, 0); },
           [&] { use.stage = Stage::combine_sent; });
}

void Engine::combine_recv(int lane, const TensorView& out, bool accumulate) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "combine_recv", Stage::combine_sent);
  const CombineOutput view = check_combine_output(self.config, out, self.backend->tokens(lane), accumulate);
  self.run(lane, "combine_recv", self.backend->epoch(lane), [&] { return self.backend->combine_recv(lane, view, 0); },
           [&] { use.stage = Stage::idle; });
}

void Engine::dispatch(int lane, const DispatchInput& in, const DispatchOutput& out) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "dispatch", Stage::idle);
  const Output view = check_output(self.config, self.placement.local_experts(rank()), out);
  const auto done = [&](bool direct) { return [&use, &view, direct] {
    use = {Stage::dispatched, direct, view.capacity, use.allocated};
  }; };
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
    self.run(lane, "dispatch", step, [&] { return self.backend->dispatch_direct(lane, input, view, print); },
             done(true));
    return;
  }
  self.run(lane, "dispatch_send", step, [&] { return self.backend->dispatch_send(lane, input); },
           [&] { use.stage = Stage::dispatch_sent; });
  self.run(lane, "dispatch_recv", step, [&] { return self.backend->dispatch_recv(lane, view); }, done(false));
}

void Engine::combine(int lane, const TensorView& expert_rows, const TensorView& out, bool accumulate) {
  Impl& self = *impl_;
  auto& use = self.begin(lane, "combine", Stage::dispatched);
  const ExpertRows rows =
      check_expert_rows(self.config, self.placement.local_experts(rank()), use.capacity, expert_rows);
  const CombineOutput view = check_combine_output(self.config, out, self.backend->tokens(lane), accumulate);
  const std::uint64_t step = self.backend->epoch(lane);
  const auto done = [&] { use.stage = Stage::idle; };
  if (use.direct) {
    self.symmetric("expert_rows", lane, expert_rows);
    const std::uint64_t print = print_of(rows, self.backend->heap());
    self.run(lane, "combine", step, [&] { return self.backend->combine_direct(lane, rows, view, print); }, done);
    return;
  }
  self.run(lane, "combine_send", step, [&] { return self.backend->combine_send(lane, rows, 0); },
           [&] { use.stage = Stage::combine_sent; });
  self.run(lane, "combine_recv", step, [&] { return self.backend->combine_recv(lane, view, 0); }, done);
}

TensorView Engine::allocate(int lane, DType dtype, std::initializer_list<std::int64_t> shape) {
  Impl& self = *impl_;
  if (lane < 0 || lane >= self.config.in_flight) {
    throw Error(ErrorKind::argument, fmt::format("lane is {}, allowed are 0 to {}", lane, self.config.in_flight - 1));
  }
  std::uint64_t bytes = size_of(dtype);
  if (shape.size() < 1 || shape.size() > 4) {
    throw Error(ErrorKind::argument, fmt::format("shape has {} dimensions, allowed are 1 to 4", shape.size()));
  }
  for (const std::int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && bytes > (std::uint64_t{1} << 42) / static_cast<std::uint64_t>(extent))) {
      throw Error(ErrorKind::argument, fmt::format("shape has an extent of {}, allowed is what symmetric_bytes = {} "
                                                   "hold",
                                                   extent, self.config.symmetric_bytes));
    }
    bytes *= static_cast<std::uint64_t>(extent);
  }
  std::size_t& used = self.lanes[static_cast<std::size_t>(lane)].allocated;
  const std::size_t begin = (used + 255) / 256 * 256;
  if (begin > self.config.symmetric_bytes || bytes > self.config.symmetric_bytes - begin) {
    throw Error(ErrorKind::argument,
                fmt::format("symmetric_bytes is {}, of which lane {} has {} left, allowed is at least the {} bytes "
                            "asked for",
                            self.config.symmetric_bytes, lane,
                            self.config.symmetric_bytes - std::min(begin, self.config.symmetric_bytes), bytes));
  }
  used = begin + bytes;
  return TensorView::dense(self.backend->symmetric(lane) + begin, dtype, shape);
}

void Engine::set_placement(Placement placement) {
  Impl& self = *impl_;
  self.check(placement);
  for (std::size_t lane = 0; lane < self.lanes.size(); ++lane) {
    if (self.lanes[lane].stage != Stage::idle) {
      throw Error(ErrorKind::argument, fmt::format("set_placement is refused while lane {} is within a step, allowed "
                                                   "is {} first",
                                                   lane, expected_call(self.lanes[lane].stage)));
    }
  }
  self.placement = std::move(placement);
  self.backend->set_placement(view_of(self.placement));
}

void Engine::abort(const std::string& reason) {
  impl_->fail("abort: " + reason, Leaving::aborted, -1);
  impl_->backend->abort_waits();
}

const Placement& Engine::placement() const { return impl_->placement; }
bool Engine::healthy() const { return !impl_->failed; }
const Config& Engine::config() const { return impl_->config; }
int Engine::rank() const { return impl_->world.rank(); }
int Engine::ranks() const { return impl_->world.size(); }
bool Engine::direct() const { return impl_->direct; }
std::size_t Engine::mapped_bytes() const { return impl_->backend->mapped_bytes(); }
std::uint64_t Engine::late_wakes() const { return impl_->backend->late_wakes(); }
void Engine::set_trace(std::function<void(const TraceEvent&)> sink) { impl_->trace = std::move(sink); }

}  // namespace moelane
