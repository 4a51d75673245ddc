#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/backend.hpp"
#include "engine/checks.hpp"
#include "engine/sentences.hpp"
#include "moelane/engine.hpp"

namespace moelane {

// What a lane expects next.
enum class Stage { idle, dispatch_sent, dispatched, combine_sent };
const char* expected_call(Stage stage);

PlacementView view_of(const Placement& placement);

// What is behind the public class: the state of the calls, around a backend that does the work.
class Engine::Impl {
 public:
  struct LaneUse {
    Stage stage = Stage::idle;
    bool direct = false;        // the way of the lane's last dispatch
    std::int32_t capacity = 0;  // of its output
    std::size_t allocated = 0;
  };

  Impl(World world_given, const Config& config_given, Placement placement_given);

  // Refuses a table for another number of experts or ranks.
  void check(const Placement& table) const;

  // Collective: every rank has the same configuration and placement, or all are told the first difference.
  void compare_with_peers();

  // Admits a call on a lane that expects it, and starts its bound.
  LaneUse& begin(int lane, const char* call, Stage needed);

  // Ends the engine; the first reason stands. Peers are told by the backend's leave().
  void end(const std::string& sentence);

  // Runs one phase, passes it to the trace, and turns what it reports into an exception. `after` runs when
  // the call has done its duty, also when the step is invalid.
  template <class Body, class After>
  void run(int lane, const char* call, std::uint64_t step, const Body& body, const After& after) {
    std::int64_t begin_ns = 0;
    WaitContext context{this, lane, step, call};
    const bool traced = trace && device == Device::cpu;
    if (traced) {
      begin_ns = now_ns();
      backend->observe_waits(lane, &Impl::on_wait, &context);
    }
    const Report report = carried_out(body);
    if (traced) {
      backend->observe_waits(lane, nullptr, nullptr);
      trace({call, lane, step, -1, begin_ns, now_ns(), report.bytes});
    }
    if (report.fault == Fault::none || !report.failed()) after();
    if (report.fault != Fault::none) fail(report, call, lane, step);
  }

  // What `body` reports; a network that refuses throws instead, and ends the engine.
  template <class Body>
  Report carried_out(const Body& body) {
    try {
      return body();
    } catch (const Error& error) {
      give_up(error);
      throw;
    }
  }
  void give_up(const Error& error);

  // Throws what was reported, and ends the engine if it cannot go on.
  [[noreturn]] void fail(const Report& report, const char* call, int lane, std::uint64_t step);
  // Throws the next thing that finished calls of a GPU have found wrong, if there is any.
  void hear_news();

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

  // Checks the input and keeps its routing in the lane; nothing has been sent yet.
  Input input_of(int lane, const char* call, const DispatchInput& in);
  void symmetric(const char* name, int lane, const TensorView& tensor) const;
  void refuse_split(const char* call) const;

  World world;
  Config config;
  Placement placement;
  std::unique_ptr<Backend> backend;
  std::vector<LaneUse> lanes;
  std::function<void(const TraceEvent&)> trace;
  Device device = Device::cpu;
  bool direct = false;
  std::atomic<bool> failed{false};
  std::mutex mutex;  // why
  std::string why;
};

}  // namespace moelane
