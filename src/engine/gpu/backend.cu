#include <algorithm>
#include <atomic>
#include <vector>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
inline void nvtxRangePushA(const char*) {}
inline void nvtxRangePop() {}
#endif

#include "cuda/arrays.hpp"
#include "engine/backend.hpp"
#include "engine/gpu/placement.hpp"
#include "engine/gpu/stamps.hpp"
#include "engine/gpu/widths.hpp"
#include "gpu/kernels.hpp"
#include "transport/peer/control.hpp"
#include "transport/peer/world.hpp"

namespace moelane {
namespace gpu {
namespace {

// Beyond this a block's counters lie in the card's memory.
constexpr std::size_t kMostShared = 128 * 1024;
// More than any kernel that moves rows declares for itself.
constexpr std::int64_t kKernelsOwnShared = 40 * 1024;
// Rows of this many bytes in flight keep the memory busy. A block that asked for more would wait until
// kernels of another division of shared memory and cache have left its multiprocessor: 5 us were measured.
constexpr std::int64_t kEnoughBulk = 64 * 1024;

const char* name_of(Call call) {
  constexpr const char* kNames[kCalls] = {"dispatch_send", "dispatch_recv", "combine_send",
                                          "combine_recv",  "dispatch",      "combine"};
  return kNames[static_cast<int>(call)];
}

struct NvtxRange {
  explicit NvtxRange(Call call) { nvtxRangePushA(name_of(call)); }
  ~NvtxRange() { nvtxRangePop(); }
};

class GpuBackend final : public Backend {
 public:
  GpuBackend(peer::PeerWorld& world, const Config& config, const PlacementView& placement)
      : config_(config),
        card_(world.device()),
        control_((select(), world.meeting())),
        heaps_(world.map_heaps(config.heap_bytes(world.size()), config.mapped_bytes(world.size()))),
        placement_(placement, config.experts, world.size()),
        shape_(shape_of(config, world.size(), world.rank())) {
    int multiprocessors = 0;
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, card_),
          "count multiprocessors");
    blocks_ = std::min({config.num_sms == 0 ? multiprocessors : config.num_sms, multiprocessors, kMaxUnits});
    find_bulk_engine();
    const auto lanes = static_cast<std::size_t>(config.in_flight), blocks = static_cast<std::size_t>(blocks_);
    const std::size_t keys = static_cast<std::size_t>(config.experts + world.size());
    tables_bytes_ =
        (2 * keys + static_cast<std::size_t>(config.experts)) * sizeof(std::int32_t);  // Tables::words
    const bool scratch = tables_bytes_ > kMostShared;
    if (scratch) scratch_ = card_array<std::int32_t>(lanes * blocks * 2 * keys);
    desks_ = card_array<Desk>(lanes);
    dead_ = card_array<std::uint32_t>(1);
    notices_ = pinned_array<Notice>(lanes * kGrades);
    stamps_ = std::make_unique<Stamps>(config.in_flight, blocks_);
    const Desk desk{0, {0, 0}, kNone, kNone};
    const PeerHandle net =
        peer_handle(heaps_.bases, world.rank(), control_.watch(), config.timeout, world.one_card());
    for (int l = 0; l < config.in_flight; ++l) {
      const auto at = static_cast<std::size_t>(l);
      check(cudaMemcpy(&desks_[at], &desk, sizeof desk, cudaMemcpyHostToDevice), "write to a card");
      const Lane<PeerHandle> lane{net, LaneLayout(shape_, l), placement_.view(),
                                  heaps_.bases[static_cast<std::size_t>(world.rank())]};
      jobs_.push_back({lane, ByTopk(config.topk), Call::dispatch, &desks_[at], &notices_[at * kGrades],
                       dead_.get(), nullptr, placement_.where(),
                       scratch ? scratch_.get() + at * blocks * 2 * keys : nullptr});
    }
    tokens_.resize(lanes);
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
    SendArgs args{
        job(lane, Call::dispatch_send), in, Alignment().with(in.x).with(shape_.row_bytes).width(), {}, {}};
    args.scales = scales_of(in.scale_columns, in.scale_bytes, in.scales.column_stride, in.scale_bytes,
                            Alignment().with(in.scales));
    args.bulk = bulk_of(args.by, args.scales, each(in.tokens));
    return start(launch_dispatch_send, args, by_entries(in.tokens), shared_bytes(args.bulk), stream);
  }
  Report dispatch_recv(int lane, const Output& out, Stream stream) override {
    ReceiveArgs args{job(lane, Call::dispatch_recv),
                     out,
                     Alignment().with(out.x).with(shape_.row_bytes).width(),
                     {},
                     {},
                     config_.partial_sums};
    args.scales = scales_of(out.scale_columns, out.scale_bytes, out.scale_bytes, out.scales.column_stride,
                            Alignment().with(out.scales));
    args.bulk = bulk_of(args.by, args.scales, kMostSlots);
    return start(launch_dispatch_receive, args, blocks_, shared_bytes(args.bulk), stream);
  }
  Report combine_send(int lane, const ExpertRows& rows, std::uint64_t print, Stream stream) override {
    Alignment alignment = Alignment().with(rows);
    if (!config_.partial_sums) alignment.with(shape_.answer_bytes);
    AnswerArgs args{job(lane, Call::combine_send), rows,  config_.combine_dtype, config_.hidden,
                    config_.partial_sums,          print, alignment.width()};
    if (config_.partial_sums && !whole_packs(config_.combine_dtype)) args.by = Width::one;
    return start(launch_combine_send, args, blocks_, 0, stream);
  }
  Report combine_recv(int lane, const CombineOutput& out, std::uint64_t print, Stream stream) override {
    return sum(lane, Call::combine_recv, {}, out, print, stream);
  }
  Report dispatch_direct(int lane, const Input& in, const Output& out, std::uint64_t print,
                         Stream stream) override {
    DirectArgs args{job(lane, Call::dispatch),
                    in,
                    out,
                    print,
                    Alignment().with(in.x).with(out.x).with(shape_.row_bytes).width(),
                    {},
                    {}};
    args.scales = scales_of(in.scale_columns, in.scale_bytes, in.scales.column_stride,
                            out.scales.column_stride, Alignment().with(in.scales).with(out.scales));
    args.bulk = bulk_of(args.by, args.scales, each(in.tokens));
    return start(launch_dispatch_direct, args, by_entries(in.tokens), shared_bytes(args.bulk), stream);
  }
  Report combine_direct(int lane, const ExpertRows& rows, const CombineOutput& out, std::uint64_t print,
                        Stream stream) override {
    return sum(lane, Call::combine, rows, out, print, stream);
  }

  Device device() const override { return Device::cuda; }
  std::optional<News> news() override {
    for (const Grade grade : {Grade::fatal, Grade::mild}) {
      for (int lane = 0; lane < config_.in_flight; ++lane) {
        Notice& notice = notices_[static_cast<std::size_t>(lane * kGrades + static_cast<int>(grade))];
        const std::atomic_ref<std::uint32_t> news(notice.news);
        if (news.load(std::memory_order_acquire) == 0) continue;
        const News heard{name_of(notice.call), lane, notice.step, notice.report};
        news.store(0, std::memory_order_release);
        return heard;
      }
    }
    return std::nullopt;
  }
  void stamp(bool on) override { stamping_ = on; }
  void tell_stamps(const std::function<void(const TraceEvent&)>& sink) override {
    select();
    stamps_->tell(sink, name_of);
  }

  void set_placement(const PlacementView& placement) override {
    select();
    placement_.set(placement);
    for (Job& one : jobs_) one.lane.placement = placement_.view();
  }
  void begin_call(int, double) override {}
  std::uint64_t epoch(int) const override { return 0; }
  std::int32_t tokens(int lane) const override { return tokens_[static_cast<std::size_t>(lane)].most; }
  std::byte* symmetric(int lane) const override {
    const Lane<PeerHandle>& at = jobs_[static_cast<std::size_t>(lane)].lane;
    return at.heap + at.at.symmetric();
  }
  std::byte* heap() const override { return jobs_.front().lane.heap; }
  std::size_t mapped_bytes() const override { return heaps_.bytes; }

  void abort_waits() override { control_.abort(); }
  void leave(Leaving why, int blamed) override {
    if (left_.exchange(true)) return;  // the first reason stands
    if (why != Leaving::closed) control_.abort();
    for (int peer = 0; peer < shape_.ranks; ++peer) {
      if (peer != shape_.rank) control_.say_farewell(peer, why, blamed);
    }
  }
  std::uint64_t farewell_of(int peer) const override { return control_.farewell_of(peer); }
  std::uint64_t late_wakes() const override { return 0; }
  void observe_waits(int, void (*)(void*, int, std::int64_t, std::int64_t), void*) override {}

 private:
  void select() const { check(cudaSetDevice(card_), "select a card"); }
  Job job(int lane, Call call) const {
    Job one = jobs_[static_cast<std::size_t>(lane)];
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
  std::size_t shared_bytes() const { return scratch_ == nullptr ? tables_bytes_ : 0; }

  // How many bytes of shared memory a block may have for rows, beside what kernels take in any case.
  void find_bulk_engine() {
    int major = 0, most = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, card_), "tell its generation");
    check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, card_),
          "tell its shared memory");
    bulk_bytes_ = major >= 9 ? most - kKernelsOwnShared : 0;
  }
  // For blocks that move at most `rows` rows each.
  Bulk bulk_of(Width by, const Scales& scales, std::int64_t rows) const {
    Bulk bulk;
    if (by != Width::sixteen || shape_.row_bytes == 0) return bulk;
    const std::int64_t at = static_cast<std::int64_t>(shared_bytes() + kBulkAlignment - 1) / kBulkAlignment *
                            kBulkAlignment,
                       along = go_along(scales, by) ? std::int64_t{scales.columns} * scales.size : 0,
                       slots = (bulk_bytes_ - at) / (shape_.row_bytes + along);
    if (slots < 2 || rows == 0) return bulk;  // one would have nothing on its way while it is sent
    const std::int64_t enough = std::max<std::int64_t>(kEnoughBulk / (shape_.row_bytes + along), 2);
    bulk.slots = static_cast<std::int32_t>(std::min<std::int64_t>({slots, enough, kMostSlots, rows}));
    bulk.row_bytes = static_cast<std::int32_t>(shape_.row_bytes);
    bulk.scale_bytes = static_cast<std::int32_t>(along);
    bulk.at = static_cast<std::int32_t>(at);
    return bulk;
  }
  std::size_t shared_bytes(const Bulk& bulk) const {
    return bulk.slots == 0
               ? shared_bytes()
               : static_cast<std::size_t>(bulk.at) +
                     static_cast<std::size_t>(bulk.slots) * static_cast<std::size_t>(bulk.slot_bytes());
  }
  bool whole_packs(DType type) const { return config_.hidden % (type == DType::fp32 ? 4 : 8) == 0; }

  Report sum(int lane, Call call, const ExpertRows& rows, const CombineOutput& out, std::uint64_t print,
             Stream stream) {
    Alignment alignment = Alignment().with(out.out);
    if (call == Call::combine) alignment.with(rows);
    const bool aligned = alignment.wide() && whole_packs(out.in_type);
    const CombineArgs args{job(lane, call),
                           rows,
                           out,
                           print,
                           call == Call::combine,
                           tokens_[static_cast<std::size_t>(lane)].known ? tokens(lane) : -1,
                           aligned};
    if (std::int64_t{tokens(lane)} * out.hidden > INT32_MAX) {
      throw Error(ErrorKind::argument,
                  "m * hidden is " + std::to_string(std::int64_t{tokens(lane)} * out.hidden) +
                      ", allowed with transport peer is up to " + std::to_string(INT32_MAX));
    }
    const std::int64_t pieces = tokens(lane) * ((out.hidden + 255) / 256);  // as sum_chunk of 16-bit elements
    const int blocks = static_cast<int>(std::clamp<std::int64_t>((pieces + 3) / 4, 1, blocks_));
    return start(launch_combine, args, blocks, call == Call::combine ? 0 : shared_bytes(), stream);
  }

  template <class Args>
  Report start(void (*launch)(const Args&, const Launch&), const Args& args, int blocks, std::size_t shared,
               Stream stream) {
    const NvtxRange range(args.job.call);
    select();
    launch(args, {card_, blocks, shared, static_cast<cudaStream_t>(stream.handle)});
    return {};
  }

  Config config_;
  int card_, blocks_ = 0;
  std::int64_t bulk_bytes_ = 0;
  peer::Control control_;
  detail::Heaps heaps_;
  CardPlacement placement_;
  Shape shape_;
  std::size_t tables_bytes_ = 0;
  CardArray<std::int32_t> scratch_;
  CardArray<Desk> desks_;
  CardArray<std::uint32_t> dead_;
  PinnedArray<Notice> notices_;
  std::unique_ptr<Stamps> stamps_;
  std::vector<Job> jobs_;
  struct Tokens {
    std::int32_t most = 0;
    bool known = true;  // not only to the card
  };
  std::vector<Tokens> tokens_;  // of each lane's last dispatch
  std::atomic<bool> stamping_{false}, left_{false};
};

}  // namespace

void allow_shared_memory(const void* kernel) {
  int card = 0, most = 0;
  cudaFuncAttributes attributes{};
  check(cudaGetDevice(&card), "tell which it is");
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, card),
        "tell its shared memory");
  check(cudaFuncGetAttributes(&attributes, kernel), "describe a kernel");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             most - static_cast<int>(attributes.sharedSizeBytes)),
        "give a kernel its shared memory");
}

}  // namespace gpu

std::unique_ptr<Backend> make_gpu_backend(detail::WorldImpl& world, const Config& config,
                                          const PlacementView& placement) {
  if (config.force_puts) {
    throw Error(ErrorKind::argument,
                "force_puts is true, allowed with transport peer is false: its puts are copies");
  }
  return std::make_unique<gpu::GpuBackend>(static_cast<peer::PeerWorld&>(world), config, placement);
}

}  // namespace moelane
