#include "gpu/kernels.hpp"
#include "gpu/numbers.cuh"
#include "gpu/sum.cuh"
#include "protocol/combine_direct.hpp"

// Combine, where the tokens are: waits for every rank's signal and sums the answers, which lie with their experts
// (direct way, whose first act is to say that the own expert rows are ready) or in the own slots (put way). Work is
// shared out by pieces of rows, so that the blocks share even a single token.
namespace moelane::gpu {
namespace {

constexpr int kTerms = 512;
constexpr int kSumThreads = 896;  // as many as the registers allow; 28 warps are a row of 7168 16-bit elements

struct Table {
  Term term[kTerms];
};

struct Combine {
  const CombineArgs& a;
  const Lane<PeerHandle>& lane;
  const Block& block;

  // Threads 0 to ranks - 1, one source each: its signal, and whether it dropped rows.
  __device__ bool await_source(int source, bool& dropped) const {
    const std::uint64_t needed = pack(block.epoch, 0);
    std::uint64_t word = 0;
    if (!block.wait_for({lane.at.signal(Signal::combine, source), needed, kEpochMask, source}, Phase::combine, word)) {
      return false;
    }
    const WireWay way = a.direct ? WireWay::direct : WireWay::put;
    if (way_of(word) != way) return block.refuse_peer(Fault::other_way, Phase::combine, source, word, needed);
    const std::uint64_t seen = word & kFingerprintMask, ours = a.print & kFingerprintMask;
    if (seen != ours) return block.refuse_peer(Fault::other_tensor, Phase::combine, source, seen, ours);
    dropped = (word & kDroppedBit) != 0;
    return true;
  }

  __device__ bool source_dropped(int source) const {
    return (*lane.own<const std::uint64_t>(lane.at.signal(Signal::combine, source)) & kDroppedBit) != 0;
  }

  // One thread of the call: who had no room for rows of this group.
  __device__ __noinline__ void tell_dropped(std::uint32_t first_dropped, bool dropped) const {
    Report report;
    report.fault = Fault::dropped;
    if (a.direct) {
      if (first_dropped == kNone) return;
      report.peer = lane.placement.rank_of[lane.own<const std::int32_t>(lane.at.own_ids())[first_dropped]];
      a.job.desk->first_dropped = kNone;
    } else {
      if (!dropped) return;
      for (report.peer = 0; !source_dropped(report.peer);) ++report.peer;
    }
    block.tell(report);
  }

  __device__ std::int32_t rank_of_entry(const std::int32_t* ids, std::int32_t entry) const {
    const std::int32_t topk = lane.shape().topk, id = ids[entry];
    if (id < 0) return -1;
    if (!lane.shape().by_rank) return lane.placement.rank_of[id];
    return new_rank(lane.placement, ids + entry / topk * topk, entry % topk);
  }

  // Put way, when some rank dropped rows: the key by which the group's rows were numbered, and how many were kept.
  __device__ std::int32_t key_of_entry(const std::int32_t* ids, std::int32_t entry) const {
    const std::int32_t rank = rank_of_entry(ids, entry);
    return rank < 0 ? -1 : lane.shape().by_rank ? lane.shape().experts + rank : ids[entry];
  }
  __device__ bool kept(std::int32_t rank, std::int32_t key, std::int32_t number) const {
    if (!source_dropped(rank)) return true;
    const auto* kept_rows = lane.own<const std::int32_t>(lane.at.kept(rank));
    return number < kept_rows[lane.shape().by_rank ? 0 : key];
  }

  __device__ Term term(const std::int32_t* ids, std::int32_t entry) const {
    const Shape& shape = lane.shape();
    const std::int32_t id = ids[entry];
    if (id < 0) return {nullptr, 0};
    const float weight = shape.by_rank ? 1.0F : lane.own<const float>(lane.at.own_weights())[entry];
    if (!a.direct) {
      if (rank_of_entry(ids, entry) < 0) return {nullptr, 0};
      return {lane.heap + lane.at.answer(entry / shape.topk, entry % shape.topk), weight};
    }
    const std::int32_t place = lane.own<const std::int32_t>(lane.at.own_places())[entry];
    if (place < 0) return {nullptr, 0};
    const std::uint32_t where = a.job.where[id];
    const auto rank = static_cast<int>(where >> 16), local = static_cast<int>(where & 0xFFFF);
    return {a.rows.at(local, place) + (lane.transport.peer_pointer(rank) - lane.heap), weight};
  }
};

template <DType in, int n>
__global__ void __launch_bounds__(kSumThreads, 1) combine_kernel(const __grid_constant__ CombineArgs a) {
  extern __shared__ std::int32_t shared[];
  __shared__ Table table;
  __shared__ std::int32_t numbers[kTerms], keys[kTerms];
  const Lane<PeerHandle>& lane = a.job.lane;
  const Shape& shape = lane.shape();
  const Block block(a.job);
  const bool dead = block.dead();
  const Combine combine{a, lane, block};
  fetch_arguments(a);
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  // The thread that tells has read early what there may be to tell.
  const bool tells = blockIdx.x == gridDim.x - 1 && tid == kSumThreads - 1;
  const std::uint32_t first_dropped = tells ? a.job.desk->first_dropped : kNone;
  if (a.direct && blockIdx.x == 0 && threadIdx.x == 0) {
    system_fence();
    block.signal_all(lane.at.signal(Signal::combine, shape.rank),
                     pack(block.epoch, combine_payload(WireWay::direct, false, a.print)));
  }

  const std::int32_t topk = shape.topk, tokens = a.tokens >= 0 ? a.tokens : lane.state().tokens;
  const auto* ids = lane.own<const std::int32_t>(lane.at.own_ids());
  const std::int32_t chunks = chunks_of<n>(a.out.hidden), most = kTerms / topk;
  const auto units = static_cast<std::int64_t>(tokens) * chunks;
  const std::int64_t begin = units * blockIdx.x / gridDim.x, end = units * (blockIdx.x + 1) / gridDim.x;
  const auto first_token = static_cast<std::int32_t>(begin / chunks);
  const auto fill = [&](std::int32_t first, std::int32_t count_of) {
    // The last threads first: the first ones wait for the signals meanwhile.
    for (std::int32_t i = kSumThreads - 1 - tid; i < count_of * topk; i += kSumThreads) {
      table.term[i] = combine.term(ids, first * topk + i);
    }
  };
  const auto batch = [&](std::int32_t first) {  // tokens from `first` that this block sums next
    const auto left = static_cast<std::int32_t>((end + chunks - 1) / chunks) - first;
    return begin >= end ? 0 : left < most ? left : most;
  };
  fill(first_token, batch(first_token));  // where the answers will be is known before they are there

  // While the signals are awaited, the rows come near: in most cases they are ready long before. What a peer still writes
  // is written there too.
  __syncthreads();
  constexpr int kPieceBytes = 32 * n * sizeof(typename Element<in>::Type), kLine = 128;
  if constexpr (kPieceBytes >= kLine) {
    constexpr int kLines = kPieceBytes / kLine;
    const auto unit = static_cast<std::int32_t>(begin - static_cast<std::int64_t>(first_token) * chunks) + tid / 32;
    const std::int32_t token = unit / chunks;
    for (std::int32_t i = tid % 32; a.direct && token < batch(first_token) && i < topk * kLines; i += 32) {
      const std::byte* row = table.term[token * topk + i / kLines].row;
      if (row != nullptr) prefetch(row + static_cast<std::int64_t>(unit % chunks) * kPieceBytes + i % kLines * kLine);
    }
  }
  block.wait_begins();
  bool fine = true, dropped = false;
  if (tid < shape.ranks && !dead) fine = combine.await_source(tid, dropped);
  const int found = __syncthreads_or((dropped ? 1 : 0) | (fine && !dead ? 0 : 2));
  if (found > 1) return;
  dropped = found == 1;
  block.wait_ends();
  auto* const cursor = a.job.scratch == nullptr ? shared : Tables::scratch(a.job, shape.experts + shape.ranks);
  if (dropped) {
    clear(cursor, shape.experts + shape.ranks);
    __syncthreads();
    count(Range{0, first_token * topk}, cursor, [&](std::int32_t i) { return combine.key_of_entry(ids, i); });
    __syncthreads();
  }

  for (std::int32_t first = first_token; batch(first) > 0; first += most) {
    const std::int32_t these = batch(first);
    if (first != first_token) {
      __syncthreads();
      fill(first, these);
      __syncthreads();
    }
    if (dropped) {
      for (std::int32_t i = tid; i < these * topk; i += kSumThreads) keys[i] = combine.key_of_entry(ids, first * topk + i);
      __syncthreads();
      if (tid < 32) number(keys, these * topk, cursor, numbers);
      __syncthreads();
      for (std::int32_t i = tid; i < these * topk; i += kSumThreads) {
        const std::int32_t rank = combine.rank_of_entry(ids, first * topk + i);
        if (rank >= 0 && !combine.kept(rank, keys[i], numbers[i])) table.term[i].row = nullptr;
      }
      __syncthreads();
    }
    // The pieces of these tokens that are this block's.
    const std::int64_t from = static_cast<std::int64_t>(first) * chunks;
    const auto unit_begin = static_cast<std::int32_t>(begin > from ? begin - from : 0);
    const auto unit_end = static_cast<std::int32_t>(end - from < these * chunks ? end - from : these * chunks);
    for (std::int32_t unit = unit_begin + tid / 32; unit < unit_end; unit += kSumThreads / 32) {
      const std::int32_t token = unit / chunks;
      std::byte* const to = a.out.out.at(first + token);
      sum_chunk<in, n>(table.term + token * topk, topk, a.out.hidden, unit - token * chunks, a.out.out_type,
                       a.out.accumulate, &to, 1);
    }
  }
  if (tells) combine.tell_dropped(first_dropped, dropped);
  block.end(0);
}

}  // namespace

void launch_combine(const CombineArgs& args, const Launch& launch) {
  with_type(args.out.in_type, args.aligned, [&]<DType in, int n>() { run(combine_kernel<in, n>, args, launch, kSumThreads); });
}

}  // namespace moelane::gpu
