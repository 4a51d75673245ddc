#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "core/farewell.hpp"
#include "moelane/engine.hpp"
#include "protocol/report.hpp"
#include "protocol/views.hpp"
#include "transport/world_impl.hpp"

namespace moelane {

// The protocol on one kind of processor: runs the operations on checked views. One for CPU ranks, which work
// before they return; one for GPU ranks, which put a kernel on the stream and say later what it found.
class Backend {
 public:
  virtual ~Backend() = default;

  // CPU: keeps the routing and reports the first bad id; changes no step.
  virtual Report keep(int lane, const Input& in) = 0;
  virtual Report dispatch_send(int lane, const Input& in, Stream stream) = 0;
  virtual Report dispatch_recv(int lane, const Output& out, Stream stream) = 0;
  virtual Report combine_send(int lane, const ExpertRows& rows, std::uint64_t print, Stream stream) = 0;
  virtual Report combine_recv(int lane, const CombineOutput& out, std::uint64_t print, Stream stream) = 0;
  virtual Report dispatch_direct(int lane, const Input& in, const Output& out, std::uint64_t print,
                                 Stream stream) = 0;
  virtual Report combine_direct(int lane, const ExpertRows& rows, const CombineOutput& out,
                                std::uint64_t print, Stream stream) = 0;

  virtual Device device() const = 0;  // where tensors lie
  // What an earlier call has found wrong, each once. CPU calls report at once.
  struct News {
    const char* call;
    int lane;
    std::uint64_t step;
    Report report;
  };
  virtual std::optional<News> news() { return std::nullopt; }
  // GPU: whether calls are stamped from now on, and what the stamps of finished calls say.
  virtual void stamp(bool) {}
  virtual void tell_stamps(const std::function<void(const TraceEvent&)>&) {}

  virtual void set_placement(const PlacementView& placement) = 0;
  // Begins a call's bound.
  virtual void begin_call(int lane, double timeout) = 0;
  virtual std::uint64_t epoch(int lane) const = 0;   // steps whose dispatch has been received; GPU: 0
  virtual std::int32_t tokens(int lane) const = 0;   // of the lane's last dispatch; GPU: at most
  virtual std::byte* symmetric(int lane) const = 0;  // the lane's memory for symmetric tensors
  virtual std::byte* heap() const = 0;
  virtual std::size_t mapped_bytes() const = 0;

  virtual void abort_waits() = 0;                   // from any thread
  virtual void leave(Leaving why, int blamed) = 0;  // tells every peer that can be told; from any thread
  virtual std::uint64_t farewell_of(int peer) const = 0;
  virtual std::uint64_t late_wakes() const = 0;
  virtual void observe_waits(int lane, void (*call)(void*, int, std::int64_t, std::int64_t),
                             void* context) = 0;
};

std::unique_ptr<Backend> make_cpu_backend(detail::WorldImpl& world, const Config& config,
                                          const PlacementView& placement);
std::unique_ptr<Backend> make_gpu_backend(detail::WorldImpl& world, const Config& config,
                                          const PlacementView& placement);

}  // namespace moelane
