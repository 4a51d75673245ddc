#include "gpu/kernels.hpp"
#include "gpu/routing.cuh"
#include "protocol/dispatch_direct.hpp"

// Dispatch, direct way. Block 0 publishes the counts; every block waits for those of all ranks, derives the places of
// its own slice of the tokens from them and writes the rows. A count travels as one word with its epoch, so that it is
// data and flag in one and needs no fence.
namespace moelane::gpu {
namespace {

struct Direct {
  const DirectArgs& a;
  const Lane<PeerHandle>& lane;
  const Block& block;
  std::int32_t topk, experts, keys;  // keys: experts, and (ranked layout) ranks behind them

  __device__ bool ranked() const { return a.out.layout == Layout::ranked; }

  // Block 0: the rows of this rank's share, for each expert and rank.
  __device__ void publish(const std::int32_t* totals, std::int32_t tokens) const {
    const Shape& shape = lane.shape();
    const std::int32_t plain = shape.experts + shape.ranks;
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < plain + kCountWords;
         i += static_cast<std::int32_t>(blockDim.x)) {
      std::uint64_t value = 0;
      if (i < keys) value = static_cast<std::uint64_t>(totals[i]);
      if (i >= plain) value = extra(static_cast<CountWord>(i - plain), tokens);
      for (int p = 1; p <= shape.ranks; ++p) {
        const int peer = (shape.rank + p) % shape.ranks;
        lane.transport.relaxed_signal(peer, lane.at.counts(shape.rank) + static_cast<std::uint64_t>(i) * 8,
                                      pack(block.epoch + 1, value));
      }
    }
    if (threadIdx.x < static_cast<unsigned>(shape.ranks)) {  // for peers whose call takes the put way
      lane.transport.relaxed_signal(static_cast<int>(threadIdx.x), lane.at.signal(Signal::counts, shape.rank),
                                    pack(block.epoch + 1, 0));
    }
  }
  __device__ std::uint64_t extra(CountWord which, std::int32_t tokens) const {
    switch (which) {
      case CountWord::tokens:
        return static_cast<std::uint64_t>(tokens);
      case CountWord::placement_low:
        return lane.placement.fingerprint;
      case CountWord::placement_high:
        return lane.placement.fingerprint >> kPayloadBits;
      case CountWord::output_low:
        return a.print;
      default:
        return a.print >> kPayloadBits;
    }
  }

  __device__ std::uint64_t at(int source, std::int32_t i) const {
    return lane.at.counts(source) + static_cast<std::uint64_t>(i) * 8;
  }
  __device__ std::uint64_t look(int source, std::int32_t i) const {
    return Word(*lane.transport.word(lane.rank(), at(source, i))).load(cuda::memory_order_relaxed);
  }
  // Word i of a source's counts, of which `word` was seen, once it is of this step.
  __device__ bool count_word(int source, std::int32_t i, std::uint64_t& word) const {
    const std::uint64_t needed = pack(block.epoch + 1, 0);
    if (reached(word, needed, kEpochMask)) return true;
    return block.wait_for({at(source, i), needed, kEpochMask, source, lane.at.signal(Signal::dispatch, source)},
                          Phase::counts, word);
  }

  // Every thread: adds up the rows of all ranks for each key, and of those before the own group. Whether nothing is
  // wrong. The loads of a thread are on their way together.
  __device__ bool gather(const Tables& tables, std::int32_t* tokens_of_source, bool& odd) const {
    constexpr int kTogether = 8;
    const Shape& shape = lane.shape();
    const std::int32_t plain = shape.experts + shape.ranks, each = keys + kCountWords, all = each * shape.ranks;
    const int group_first = lane.group_first();
    for (std::int32_t first = static_cast<std::int32_t>(threadIdx.x); first < all; first += kTogether * kThreads) {
      std::uint64_t words[kTogether];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const std::int32_t f = first + u * kThreads, i = f % each;
        if (f < all) words[u] = look(f / each, i < keys ? i : plain + i - keys);
      }
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const std::int32_t f = first + u * kThreads, source = f / each, i = f % each;
        if (f >= all) break;
        if (!count_word(source, i < keys ? i : plain + i - keys, words[u])) return false;
        const std::uint64_t value = payload_of(words[u]);
        if (i >= keys) {
          const auto which = static_cast<CountWord>(i - keys);
          if (which == CountWord::tokens) {
            tokens_of_source[source] = static_cast<std::int32_t>(value);
          } else if (value != (extra(which, 0) & kPayloadMask)) {
            odd = true;
          }
        } else if (value != 0) {
          atomicAdd(&tables.total[i], static_cast<std::int32_t>(value));
          if (source < group_first) atomicAdd(&tables.cursor[i], static_cast<std::int32_t>(value));
        }
      }
    }
    return true;
  }

  // What is wrong with a source's counts, if anything is: nobody may write out of place.
  __device__ __noinline__ bool agrees(int source) const {
    const Shape& shape = lane.shape();
    bool fine = true;
    const auto get = [&](int of, CountWord which) {
      const std::int32_t i = shape.experts + shape.ranks + static_cast<int>(which);
      std::uint64_t word = look(of, i);
      fine = fine && count_word(of, i, word);
      return payload_of(word);
    };
    constexpr std::uint64_t k48 = (std::uint64_t{1} << 48) - 1;
    const std::uint64_t placement =
        get(source, CountWord::placement_low) | get(source, CountWord::placement_high) << kPayloadBits;
    const std::uint64_t output =
        get(source, CountWord::output_low) | get(source, CountWord::output_high) << kPayloadBits;
    const std::uint64_t tokens = get(source, CountWord::tokens);
    const std::uint64_t groups = get(source / shape.tp * shape.tp, CountWord::tokens);
    if (!fine) return false;
    const std::uint64_t ours = lane.placement.fingerprint & k48;
    if (placement != ours) return block.refuse_peer(Fault::other_placement, Phase::counts, source, placement, ours);
    if (output != (a.print & k48)) {
      return block.refuse_peer(Fault::other_tensor, Phase::counts, source, output, a.print & k48);
    }
    if (tokens != groups || tokens > static_cast<std::uint64_t>(shape.max_tokens)) {
      return block.refuse_peer(Fault::other_tokens, Phase::counts, source, tokens, groups);
    }
    return true;
  }

  // One warp: the caller's counts and offsets.
  __device__ __noinline__ void write_out_counts(const std::int32_t* totals) const {
    const std::int32_t* own = lane.placement.by_rank + lane.placement.first[lane.rank()];
    Report report;
    write_counts_together(
        block, a.out, ranked() ? totals[experts + lane.rank()] : 0,
        [&](std::int32_t local) { return totals[own[local]]; }, report);
    if (report.fault != Fault::none) block.tell(report);
  }

  // Contiguous layout: where each expert begins in its rank's output. A warp takes a rank.
  __device__ void add_firsts(const Tables& tables) const {
    const PlacementView& placement = lane.placement;
    for (int rank = static_cast<int>(threadIdx.x / 32); rank < lane.shape().ranks; rank += static_cast<int>(blockDim.x / 32)) {
      add_offsets(
          Range{placement.first[rank], placement.first[rank + 1]}, tables.cursor,
          [&](std::int32_t i) { return placement.by_rank[i]; },
          [&](std::int32_t expert) {
            return static_cast<std::int32_t>(aligned(tables.total[expert], a.out.alignment));
          });
    }
  }

  // The key by which entry k of a token is numbered; id(k) are the token's.
  template <class Id>
  __device__ std::int32_t key(const Tables& tables, const Id& id, std::int32_t k) const {
    const std::int32_t expert = id(k);
    if (expert < 0 || !ranked()) return expert;
    const std::int32_t rank = tables.rank(expert);
    for (std::int32_t j = 0; j < k; ++j) {
      if (id(j) >= 0 && tables.rank(id(j)) == rank) return -1;
    }
    return experts + rank;
  }
  __device__ std::int32_t key_of_entry(const Tables& tables, std::int32_t entry) const {
    const std::int32_t token = entry / topk;
    return key(tables, [&](std::int32_t k) { return id_of(a.in, experts, token, k); }, entry % topk);
  }

  // All threads: reads the ids of the tokens [begin, end), at most a batch.
  __device__ void read(Batch& batch, Range tokens) const {
    const std::int32_t first = tokens.begin * topk, n = tokens.end * topk - first;
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n; i += kThreads) {
      batch.id[i] = keep(a.job, a.in, (first + i) / topk, (first + i) % topk);
    }
  }

  // All threads, after a barrier: numbers these tokens and (own share) writes their rows.
  __device__ std::uint64_t move(Batch& batch, const Tables& tables, Range tokens, bool mine) const {
    const std::int32_t first = tokens.begin * topk, n = tokens.end * topk - first;
    const auto tid = static_cast<std::int32_t>(threadIdx.x);
    auto* const places = lane.own<std::int32_t>(lane.at.own_places()) + first;
    if (ranked()) {
      for (std::int32_t i = tid; i < n; i += kThreads) {
        batch.key[i] = key(tables, [&](std::int32_t k) { return batch.id[i - i % topk + k]; }, i % topk);
      }
      __syncthreads();
    }
    if (tid < 32) number(ranked() ? batch.key : batch.id, n, tables.cursor, batch.number);
    __syncthreads();
    std::uint64_t rows = 0;
    for (std::int32_t i = tid; i < n; i += kThreads) {
      const std::int32_t place = batch.number[i] >= 0 && batch.number[i] < a.out.capacity ? batch.number[i] : -1;
      places[i] = place;
      batch.to[i] = batch.scales_to[i] = nullptr;
      if (batch.number[i] >= a.out.capacity) {
        atomicMin(&a.job.desk->first_dropped, static_cast<std::uint32_t>(first + i));
      }
      if (place < 0 || !mine) continue;
      ++rows;
      const std::int32_t rank = tables.rank(batch.id[i]), local = tables.local(batch.id[i]);
      const std::ptrdiff_t there = lane.transport.peer_pointer(rank) - lane.heap;
      batch.to[i] = a.out.x.at(local, place) + there;
      if (a.out.scale_columns > 0) batch.scales_to[i] = a.out.scales.at(local, place) + there;
      for (std::int32_t j = 0; ranked() && j < topk; ++j) {
        const std::int32_t id = batch.id[i - i % topk + j];
        const bool here = id >= 0 && tables.rank(id) == rank;
        *reinterpret_cast<std::int32_t*>(a.out.ids.at(place, j) + there) = here ? tables.local(id) : -1;
        *reinterpret_cast<float*>(a.out.weights.at(place, j) + there) =
            here ? *reinterpret_cast<const float*>(a.in.weights.at((first + i) / topk, j)) : 0.0F;
      }
    }
    __syncthreads();
    if (mine) {
      copy_rows<2>(a.by, tokens.end - tokens.begin, topk, batch.to, lane.shape().row_bytes,
                   [&](std::int32_t row) { return a.in.x.at(tokens.begin + row); });
      copy_all_scales(a.scales, tokens.end - tokens.begin, topk, batch.scales_to,
                      [&](std::int32_t row) { return a.in.scales.at(tokens.begin + row); });
    }
    return rows;
  }
};

// Ranked layout, when rows found no room: the (row, k) pairs of those that did, which no rank knew before.
__device__ void count_pairs_left(const Output& out, const Lane<PeerHandle>& lane) {
  clear(out.expert_counts, lane.placement.local_experts(lane.rank()));
  __syncthreads();
  const std::int32_t topk = lane.shape().topk;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < *out.row_count * topk; i += kThreads) {
    const std::int32_t local = *reinterpret_cast<const std::int32_t*>(out.ids.at(i / topk, i % topk));
    if (local >= 0) atomicAdd(&out.expert_counts[local], 1);
  }
}

// The first rows of the slice, on their way from memory while the counts are awaited.
__device__ void prefetch(const Input& in, Range tokens, std::int64_t row_bytes) {
  constexpr std::int64_t kLine = 128;
  const std::int64_t lines = (row_bytes + kLine - 1) / kLine;
  for (std::int64_t i = threadIdx.x; i < (tokens.end - tokens.begin) * lines && i < 2048; i += blockDim.x) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(in.x.at(tokens.begin + static_cast<std::int32_t>(i / lines)) + i % lines * kLine));
  }
}

__global__ void __launch_bounds__(kThreads, 1) dispatch_direct_kernel(const __grid_constant__ DirectArgs a) {
  extern __shared__ std::int32_t shared[];
  __shared__ Batch batch;
  __shared__ std::int32_t tokens_of_source[PeerHandle::kMaxRanks];
  const Lane<PeerHandle>& lane = a.job.lane;
  const Shape& shape = lane.shape();
  const Block block(a.job);
  if (block.dead()) return;
  const bool ranked = a.out.layout == Layout::ranked;
  const std::int32_t keys = shape.experts + (ranked ? shape.ranks : 0), topk = shape.topk;
  const Direct direct{a, lane, block, topk, shape.experts, keys};
  const Tables tables(a.job, shared, keys);
  const std::int32_t tokens = tokens_in(a.in).count, most = kBatch / topk;
  const int mine = shape.rank % shape.tp;

  // The tokens of every rank of the group in turn: all are numbered, the own are moved.
  const auto slice = [&](int j) {
    const Share part = share_of(tokens, shape.tp, j);
    const Range own = slice_of(part.count, gridDim.x, blockIdx.x);
    return Range{part.begin + own.begin, part.begin + own.end};
  };
  const auto some = [&](Range of, std::int32_t begin) { return Range{begin, begin + most < of.end ? begin + most : of.end}; };
  const auto key_of_entry = [&](std::int32_t entry) { return direct.key_of_entry(tables, entry); };
  __syncthreads();
  if (blockIdx.x == 0) {
    const Share own = share_of(tokens, shape.tp, mine);
    const Range entries{own.begin * topk, (own.begin + own.count) * topk};
    count(entries, tables.total, key_of_entry);
    // Ranked: counts of experts are the receiver's numbers of pairs.
    if (ranked) count(entries, tables.total, [&](std::int32_t i) { return id_of(a.in, shape.experts, i / topk, i % topk); });
    __syncthreads();
    direct.publish(tables.total, tokens);
    __syncthreads();
    clear(tables.total, keys);
  }
  // All that can be done before the counts are there.
  direct.read(batch, some(slice(0), slice(0).begin));
  prefetch(a.in, slice(mine), shape.row_bytes);
  count(Range{0, slice(0).begin * topk}, tables.cursor, key_of_entry);
  __syncthreads();
  block.wait_begins();
  bool odd = false;
  const bool came = direct.gather(tables, tokens_of_source, odd);
  if (!Block::fine(!came)) return;
  block.wait_ends();
  if (static_cast<int>(threadIdx.x) < shape.ranks) {
    const std::int32_t own = tokens_of_source[threadIdx.x];
    odd = odd || own > shape.max_tokens || own != tokens_of_source[static_cast<int>(threadIdx.x) / shape.tp * shape.tp];
  }
  if (!Block::fine(odd)) {
    if (static_cast<int>(threadIdx.x) < shape.ranks) direct.agrees(static_cast<int>(threadIdx.x));
    return;
  }
  if (a.out.layout == Layout::contiguous) {
    direct.add_firsts(tables);
    __syncthreads();
  }
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x >= blockDim.x - 32) direct.write_out_counts(tables.total);

  std::uint64_t rows = 0;
  for (int j = 0; j < shape.tp; ++j) {
    const Range own = slice(j);
    if (j > 0) {
      __syncthreads();
      count(Range{slice(j - 1).end * topk, own.begin * topk}, tables.cursor, key_of_entry);
    }
    for (std::int32_t t = own.begin; t < own.end; t += most) {
      const Range these = some(own, t);
      if (j > 0 || t > own.begin) {
        __syncthreads();
        direct.read(batch, these);
        __syncthreads();
      }
      rows += direct.move(batch, tables, these, j == mine);
    }
  }

  const std::uint64_t needed = pack(block.epoch + 1, 0);
  if (block.last_and_signal(lane.at.signal(Signal::dispatch, shape.rank),
                            needed | dispatch_payload(WireWay::direct, tokens))) {
    bool fine = true;
    if (static_cast<int>(threadIdx.x) < shape.ranks) {
      std::uint64_t word = 0;
      const int source = static_cast<int>(threadIdx.x);
      fine = block.wait_for({lane.at.signal(Signal::dispatch, source), needed, kEpochMask, source}, Phase::dispatch, word);
    }
    if (!Block::fine(!fine)) return;
    if (ranked && *a.out.row_count < tables.total[shape.experts + shape.rank]) count_pairs_left(a.out, lane);
    if (threadIdx.x == 0) {
      tell_bad_input(block, a.in);
      LaneState& state = lane.state();
      state.epoch = block.epoch + 1;
      state.tokens = tokens;
      state.dropped = 0;
    }
  }
  block.end(rows * static_cast<std::uint64_t>(shape.slot_bytes()));
}

}  // namespace

void launch_dispatch_direct(const DirectArgs& args, const Launch& launch) {
  run(dispatch_direct_kernel, args, launch);
}

}  // namespace moelane::gpu
