#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "engine/backend.hpp"
#include "engine/cpu_team.hpp"
#include "moelane/error.hpp"
#include "protocol/combine_direct.hpp"
#include "protocol/combine_put.hpp"
#include "protocol/dispatch_direct.hpp"
#include "protocol/dispatch_put.hpp"

namespace moelane {
namespace {

// Calls that move more than this write past the caches: their rows would push each other out before they are
// read.
constexpr std::int64_t kStreamFrom = 1 << 20;

class CpuBackend final : public Backend {
 public:
  CpuBackend(detail::WorldImpl& world, const Config& config, const PlacementView& placement)
      : config_(config),
        heaps_(world.map_heaps(config.heap_bytes(world.size()), config.mapped_bytes(world.size()))) {
    const Shape shape = shape_of(config, world.size(), world.rank());
    std::byte* own = heaps_.bases[static_cast<std::size_t>(world.rank())];
    for (int l = 0; l < config.in_flight; ++l) {
      waiters_.push_back(std::make_unique<Waiter>());
      world.tune(*waiters_.back());
      waiters_.back()->aborted = &aborted_;
      const LaneLayout at(shape, l);
      lanes_.push_back({MemoryPeers(heaps_.bases.data(), world.rank(), world.size(), at.bell(),
                                    !config.force_puts, waiters_.back().get(), heaps_.far.get()),
                        at, placement, own});
    }
  }

  Report keep(int lane, const Input& in) override {
    Report report;
    keep_routing(CpuTeam{}, at(lane), in, report);
    return report;
  }
  Report dispatch_send(int lane, const Input& in, Stream) override {
    Report report;
    dispatch_put_send(team(in.tokens, at(lane).shape().row_bytes), at(lane), in, report);
    return report;
  }
  Report dispatch_recv(int lane, const Output& out, Stream) override {
    Report report;
    dispatch_put_recv(team(config_.max_tokens, at(lane).shape().row_bytes), at(lane), out, report);
    return report;
  }
  Report combine_send(int lane, const ExpertRows& rows, std::uint64_t print, Stream) override {
    Report report;
    const Answers answers{rows, config_.partial_sums, config_.combine_dtype, config_.hidden};
    combine_put_send(team(at(lane).state().tokens, at(lane).shape().answer_bytes), at(lane), answers, print,
                     report);
    return report;
  }
  Report combine_recv(int lane, const CombineOutput& out, std::uint64_t print, Stream) override {
    Report report;
    combine_put_recv(team(at(lane).state().tokens, at(lane).shape().answer_bytes), at(lane), out, print,
                     report);
    return report;
  }
  Report dispatch_direct(int lane, const Input& in, const Output& out, std::uint64_t print, Stream) override {
    Report report;
    moelane::dispatch_direct(team(in.tokens, at(lane).shape().row_bytes), at(lane), in, out,
                             OutputPrint{print}, report);
    return report;
  }
  Report combine_direct(int lane, const ExpertRows& rows, const CombineOutput& out, std::uint64_t print,
                        Stream) override {
    Report report;
    moelane::combine_direct(team(at(lane).state().tokens, at(lane).shape().answer_bytes), at(lane), rows, out,
                            print, report);
    return report;
  }

  Device device() const override { return Device::cpu; }
  void set_placement(const PlacementView& placement) override {
    for (auto& lane : lanes_) lane.placement = placement;
  }
  void begin_call(int lane, double timeout) override {
    waiters_[static_cast<std::size_t>(lane)]->deadline_ns = deadline_after(timeout);
  }
  std::uint64_t epoch(int lane) const override { return at(lane).state().epoch; }
  std::int32_t tokens(int lane) const override { return at(lane).state().tokens; }
  std::byte* symmetric(int lane) const override { return heap() + at(lane).at.symmetric(); }
  std::byte* heap() const override { return lanes_.front().heap; }
  std::size_t mapped_bytes() const override { return heaps_.bytes; }

  void abort_waits() override {
    aborted_.store(true, std::memory_order_seq_cst);
    for (const auto& lane : lanes_) lane.transport.ring(lane.rank());
  }
  void leave(Leaving why, int blamed) override {
    if (left_.exchange(true)) return;  // the first reason stands
    const int me = lanes_.front().rank();
    for (int peer = 0; peer < lanes_.front().shape().ranks; ++peer) {
      if (peer == me) continue;
      try {
        lanes_.front().transport.signal(peer, farewell(me), farewell_word(why, blamed), SignalOp::set);
      } catch (const Error&) {
        continue;  // the network refuses: this peer finds out by its bound
      }
      for (const auto& lane : lanes_) lane.transport.ring(peer);
    }
  }
  std::uint64_t farewell_of(int peer) const override {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(heap() + farewell(peer))).load();
  }
  std::uint64_t late_wakes() const override {
    std::uint64_t sum = 0;
    for (const auto& waiter : waiters_) sum += waiter->late_wakes.load();
    return sum;
  }
  void observe_waits(int lane, void (*call)(void*, int, std::int64_t, std::int64_t), void* context) override {
    waiters_[static_cast<std::size_t>(lane)]->observe = call;
    waiters_[static_cast<std::size_t>(lane)]->context = context;
  }

 private:
  const Lane<MemoryPeers>& at(int lane) const { return lanes_[static_cast<std::size_t>(lane)]; }
  CpuTeam team(std::int64_t tokens, std::int64_t row_bytes) const {
    return {tokens * config_.topk * row_bytes > kStreamFrom ? cpu::Store::stream : cpu::Store::cached};
  }

  Config config_;
  detail::Heaps heaps_;
  std::vector<std::unique_ptr<Waiter>> waiters_;
  std::vector<Lane<MemoryPeers>> lanes_;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> left_{false};
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(detail::WorldImpl& world, const Config& config,
                                          const PlacementView& placement) {
  return std::make_unique<CpuBackend>(world, config, placement);
}

}  // namespace moelane
