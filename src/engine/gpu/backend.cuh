#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "cuda/arrays.hpp"
#include "engine/backend.hpp"
#include "engine/gpu/call_names.hpp"
#include "engine/gpu/placement.hpp"
#include "engine/gpu/ranks.hpp"
#include "engine/gpu/shared_plan.hpp"
#include "engine/gpu/stamps.hpp"
#include "engine/gpu/widths.hpp"
#include "gpu/kernels.cuh"

namespace moelane::gpu {

// The operations on one kind of GPU ranks: fills in the kernels' arguments, and hears what kernels report.
template <GpuRanks Ranks>
class GpuBackend final : public Backend {
 public:
  using T = typename Ranks::Handle;

  GpuBackend(detail::WorldImpl& world, const Config& config, const PlacementView& placement)
      : config_(config),
        ranks_(world, config),
        card_(ranks_.card()),
        placement_(placement, config.experts, world.size()),
        shape_(shape_of(config, world.size(), world.rank())),
        shared_plan_(card_, shape_),
        tokens_(static_cast<std::size_t>(config.in_flight)) {
    int multiprocessors = 0;
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, card_),
          "count multiprocessors");
    blocks_ = std::min({config.num_sms == 0 ? multiprocessors : config.num_sms, multiprocessors, kMaxUnits});
    stamps_ = std::make_unique<Stamps>(config.in_flight, blocks_);
    make_contexts();
    // Nobody's kernels wait for a rank that still has to make its memory: that would wait for them.
    world.barrier();
  }
  // Nothing of this engine may run when its memory goes.
  ~GpuBackend() override {
    cudaSetDevice(card_);
    cudaDeviceSynchronize();
  }

  Report keep(int lane, const Input& in) override {
    tokens_[static_cast<std::size_t>(lane)] = {in.tokens, in.tokens_at == nullptr};
    return {};
  }
  Report dispatch_send(int lane, const Input& in, Stream stream) override {
    SendArgs<T> args{context(lane, CallKind::dispatch_send),
                     in,
                     Alignment().with(in.x).with(shape_.row_bytes).width(),
                     {},
                     {}};
    args.scales = scales_of(in.scale_columns, in.scale_bytes, in.scales.column_stride, in.scale_bytes,
                            Alignment().with(in.scales));
    args.bulk = shared_plan_.bulk_of(args.width, args.scales, each(in.tokens));
    return start(launch_dispatch_send, args, by_entries(in.tokens), shared_plan_.bytes(args.bulk), stream);
  }
  Report dispatch_recv(int lane, const Output& out, Stream stream) override {
    ReceiveArgs<T> args{context(lane, CallKind::dispatch_recv),
                        out,
                        Alignment().with(out.x).with(shape_.row_bytes).width(),
                        {},
                        {},
                        config_.partial_sums};
    args.scales = scales_of(out.scale_columns, out.scale_bytes, out.scale_bytes, out.scales.column_stride,
                            Alignment().with(out.scales));
    args.bulk = shared_plan_.bulk_of(args.width, args.scales, kMostSlots);
    return start(launch_dispatch_receive, args, blocks_, shared_plan_.bytes(args.bulk), stream);
  }
  Report combine_send(int lane, const ExpertRows& rows, std::uint64_t print, Stream stream) override {
    Alignment alignment = Alignment().with(rows);
    if (!config_.partial_sums) alignment.with(shape_.answer_bytes);
    AnswerArgs<T> args{context(lane, CallKind::combine_send),
                       rows,
                       config_.combine_dtype,
                       config_.hidden,
                       config_.partial_sums,
                       print,
                       alignment.width()};
    if (config_.partial_sums && !whole_packs(config_.combine_dtype)) args.width = Width::one;
    return start(launch_combine_send, args, blocks_, 0, stream);
  }
  Report combine_recv(int lane, const CombineOutput& out, std::uint64_t print, Stream stream) override {
    return sum(lane, CallKind::combine_recv, {}, out, print, stream);
  }
  Report dispatch_direct(int lane, const Input& in, const Output& out, std::uint64_t print,
                         Stream stream) override {
    DirectArgs<T> args{context(lane, CallKind::dispatch),
                       in,
                       out,
                       print,
                       Alignment().with(in.x).with(out.x).with(shape_.row_bytes).width(),
                       {},
                       {}};
    args.scales = scales_of(in.scale_columns, in.scale_bytes, in.scales.column_stride,
                            out.scales.column_stride, Alignment().with(in.scales).with(out.scales));
    args.bulk = shared_plan_.bulk_of(args.width, args.scales, each(in.tokens));
    return start(launch_dispatch_direct, args, by_entries(in.tokens), shared_plan_.bytes(args.bulk), stream);
  }
  Report combine_direct(int lane, const ExpertRows& rows, const CombineOutput& out, std::uint64_t print,
                        Stream stream) override {
    return sum(lane, CallKind::combine, rows, out, print, stream);
  }

  Device device() const override { return Device::cuda; }
  std::optional<News> news() override {
    for (const Severity severity : {Severity::fatal, Severity::mild}) {
      for (int lane = 0; lane < config_.in_flight; ++lane) {
        ReportSlot& slot =
            report_slots_[static_cast<std::size_t>(lane * kSeverities + static_cast<int>(severity))];
        const std::atomic_ref<std::uint32_t> filled(slot.filled);
        if (filled.load(std::memory_order_acquire) == 0) continue;
        const News heard{name_of(slot.call), lane, slot.step, slot.report};
        filled.store(0, std::memory_order_release);
        return heard;
      }
    }
    return std::nullopt;
  }
  void stamp(bool on) override { stamping_ = on; }
  void tell_stamps(const std::function<void(const TraceEvent&)>& sink) override {
    select();
    stamps_->hand_to(sink);
  }

  void set_placement(const PlacementView& placement) override {
    select();
    placement_.set(placement);
    for (CallContext<T>& one : contexts_) one.lane.placement = placement_.view();
  }
  void begin_call(int, double) override {}
  std::uint64_t epoch(int) const override { return 0; }
  std::int32_t tokens(int lane) const override { return tokens_[static_cast<std::size_t>(lane)].most; }
  std::byte* symmetric(int lane) const override {
    return heap() + contexts_[static_cast<std::size_t>(lane)].lane.at.symmetric();
  }
  std::byte* heap() const override { return ranks_.heap(); }
  std::size_t mapped_bytes() const override { return ranks_.heap_bytes(); }

  void abort_waits() override { ranks_.abort(); }
  void leave(Leaving why, int blamed) override {
    if (left_.exchange(true)) return;  // the first reason stands
    if (why != Leaving::closed) ranks_.abort();
    for (int peer = 0; peer < shape_.ranks; ++peer) {
      if (peer != shape_.rank) ranks_.say_farewell(peer, why, blamed);
    }
  }
  std::uint64_t farewell_of(int peer) const override { return ranks_.farewell_of(peer); }
  std::uint64_t late_wakes() const override { return 0; }
  void observe_waits(int, void (*)(void*, int, std::int64_t, std::int64_t), void*) override {}

 private:
  void select() const { check(cudaSetDevice(card_), "select a card"); }

  // What the lanes' kernels are given, and the memory that this points to.
  void make_contexts() {
    const auto lanes = static_cast<std::size_t>(config_.in_flight);
    const std::size_t scratch_words =
        static_cast<std::size_t>(blocks_) * static_cast<std::size_t>(counter_words(shape_));
    if (!shared_plan_.tables_fit()) scratch_ = card_array<std::int32_t>(lanes * scratch_words);
    shared_states_ = card_array<SharedState>(lanes);
    dead_ = card_array<std::uint32_t>(1);
    report_slots_ = pinned_array<ReportSlot>(lanes * kSeverities);
    const SharedState fresh{0, {0, 0}, kNone, kNone};
    for (std::size_t l = 0; l < lanes; ++l) {
      check(cudaMemcpy(&shared_states_[l], &fresh, sizeof fresh, cudaMemcpyHostToDevice), "write to a card");
      const Lane<T> lane{ranks_.handle(static_cast<int>(l)), LaneLayout(shape_, static_cast<int>(l)),
                         placement_.view(), heap()};
      contexts_.push_back({lane, TopkDivider(config_.topk), CallKind::dispatch, &shared_states_[l],
                           &report_slots_[l * kSeverities], dead_.get(), nullptr, placement_.where(),
                           scratch_ == nullptr ? nullptr : scratch_.get() + l * scratch_words});
    }
  }
  CallContext<T> context(int lane, CallKind call) const {
    CallContext<T> one = contexts_[static_cast<std::size_t>(lane)];
    one.call = call;
    one.stamps = stamping_ ? stamps_->of(lane, call) : nullptr;
    return one;
  }

  // A block for each (token, k) at most: more would only wait.
  int by_entries(std::int32_t tokens) const {
    return static_cast<int>(std::clamp<std::int64_t>(std::int64_t{tokens} * config_.topk, 1, blocks_));
  }
  // Of `tokens` tokens, those of a block.
  std::int64_t each(std::int32_t tokens) const { return (std::int64_t{tokens} + blocks_ - 1) / blocks_; }
  bool whole_packs(DType type) const { return config_.hidden % (type == DType::fp32 ? 4 : 8) == 0; }

  Report sum(int lane, CallKind call, const ExpertRows& rows, const CombineOutput& out, std::uint64_t print,
             Stream stream) {
    Alignment alignment = Alignment().with(out.out);
    if (call == CallKind::combine) alignment.with(rows);
    const bool aligned = alignment.wide() && whole_packs(out.in_type);
    const CombineArgs<T> args{context(lane, call),
                              rows,
                              out,
                              print,
                              call == CallKind::combine,
                              tokens_[static_cast<std::size_t>(lane)].known ? tokens(lane) : -1,
                              aligned};
    if (std::int64_t{tokens(lane)} * out.hidden > INT32_MAX) {
      throw Error(ErrorKind::argument, "m * hidden is " +
                                           std::to_string(std::int64_t{tokens(lane)} * out.hidden) +
                                           ", allowed on a GPU is up to " + std::to_string(INT32_MAX));
    }
    const std::int64_t pieces = tokens(lane) * ((out.hidden + 255) / 256);  // as sum_chunk of 16-bit elements
    const int blocks = static_cast<int>(std::clamp<std::int64_t>((pieces + 3) / 4, 1, blocks_));
    return start(launch_combine, args, blocks, call == CallKind::combine ? 0 : shared_plan_.bytes(), stream);
  }

  template <template <class> class Args>
  Report start(void (*launch)(const Args<T>&, const Launch&), const Args<T>& args, int blocks,
               std::size_t shared, Stream stream) {
    const NvtxRange range(args.context.call);
    select();
    launch(args, {card_, blocks, shared, static_cast<cudaStream_t>(stream.handle)});
    return {};
  }

  Config config_;
  Ranks ranks_;
  int card_, blocks_ = 0;
  CardPlacement placement_;
  Shape shape_;
  SharedPlan shared_plan_;
  CardArray<std::int32_t> scratch_;
  CardArray<SharedState> shared_states_;
  CardArray<std::uint32_t> dead_;
  PinnedArray<ReportSlot> report_slots_;
  std::unique_ptr<Stamps> stamps_;
  std::vector<CallContext<T>> contexts_;
  struct Tokens {
    std::int32_t most = 0;
    bool known = true;  // not only to the card
  };
  std::vector<Tokens> tokens_;  // of each lane's last dispatch
  std::atomic<bool> stamping_{false}, left_{false};
};

}  // namespace moelane::gpu
