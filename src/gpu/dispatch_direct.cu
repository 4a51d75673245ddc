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

  // Block 0: the rows of this rank's share, for each expert and rank; each thread then clears what it has read.
  __device__ void publish(std::int32_t* totals, std::int32_t tokens) const {
    const Shape& shape = lane.shape();
    const std::int32_t plain = shape.experts + shape.ranks;
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < plain + kCountWords;
         i += static_cast<std::int32_t>(blockDim.x)) {
      std::uint64_t value = 0;
      if (i < keys) value = static_cast<std::uint64_t>(atomicExch(&totals[i], 0));
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

  enum Found : int { fine = 0, odd = 1, late = 2 };

  // Every thread: adds up the rows of all ranks for each key, and of those before the own group. The loads of a thread
  // are on their way together, and again until all its words have come.
  __device__ int gather(const Tables& tables, std::int32_t* tokens_of_source) const {
    constexpr int kTogether = 3, kTries = 64;
    const Shape& shape = lane.shape();
    const std::int32_t plain = shape.experts + shape.ranks, each = keys + kCountWords, all = each * shape.ranks;
    const std::uint64_t needed = pack(block.epoch + 1, 0);
    const int group_first = lane.group_first();
    int found = fine;
    for (std::int32_t first = static_cast<std::int32_t>(threadIdx.x); first < all; first += kTogether * kThreads) {
      std::uint64_t words[kTogether];
      std::int32_t source[kTogether], which[kTogether];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const std::int32_t f = first + u * kThreads, i = f % each;
        source[u] = f < all ? f / each : -1;
        which[u] = i < keys ? i : plain + i - keys;
        words[u] = needed;
        if (source[u] >= 0) words[u] = look(source[u], which[u]);
      }
      for (int tries = 0; tries < kTries; ++tries) {
        bool come = true;
#pragma unroll
        for (int u = 0; u < kTogether; ++u) come = come && reached(words[u], needed, kEpochMask);
        if (come) break;
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
          if (!reached(words[u], needed, kEpochMask)) words[u] = look(source[u], which[u]);
        }
      }
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        if (source[u] < 0) break;
        if (!count_word(source[u], which[u], words[u])) return late;
        const auto value = static_cast<std::int32_t>(payload_of(words[u]));
        if (which[u] >= plain) {
          const auto word = static_cast<CountWord>(which[u] - plain);
          if (word == CountWord::tokens) {
            tokens_of_source[source[u]] = value;
            if (value > shape.max_tokens) found = odd;
          } else if (payload_of(words[u]) != (extra(word, 0) & kPayloadMask)) {
            found = odd;
          }
        } else if (value != 0) {
          atomicAdd(&tables.total[which[u]], value);
          if (source[u] < group_first) atomicAdd(&tables.cursor[which[u]], value);
        }
      }
    }
    return found;
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

  // Contiguous layout: where each expert begins in its rank's output. A warp takes a rank.
  __device__ void add_firsts(const Tables& tables, bool write_out) const {
    const PlacementView& placement = lane.placement;
    for (int rank = static_cast<int>(threadIdx.x / 32); rank < lane.shape().ranks; rank += kThreads / 32) {
      const bool tell = write_out && rank == lane.rank();
      const Range range{placement.first[rank], placement.first[rank + 1]};
      const std::int32_t end = prefix(
          range,
          [&](std::int32_t i) {
            return static_cast<std::int32_t>(aligned(tables.total[placement.by_rank[i]], a.out.alignment));
          },
          [&](std::int32_t i, std::int32_t first) {
            tables.cursor[placement.by_rank[i]] += first;
            if (tell) a.out.expert_offsets[i - range.begin] = first;
          });
      if (tell && threadIdx.x % 32 == 0) a.out.expert_offsets[range.size()] = end;
    }
  }

  // All threads of one block: the caller's counts, each by the thread of its expert. Whether all rows find room, as far as
  // this thread knows.
  __device__ bool write_counts_out(const Tables& tables) const {
    const int me = lane.rank();
    std::int64_t rows = ranked() && threadIdx.x == 0 ? tables.total[experts + me] : 0;
    if (ranked() && threadIdx.x == 0) *a.out.row_count = static_cast<std::int32_t>(rows);
    for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x); e < experts; e += kThreads) {
      if (tables.rank(e) != me) continue;
      const std::int32_t local = tables.local(e), here = tables.total[e];
      a.out.expert_counts[local] = here;
      if (a.out.layout == Layout::padded && here > rows) rows = here;
      // Contiguous: the last offset, in whole experts, decides; the end of the last expert's rows is looked at later.
      if (a.out.layout == Layout::contiguous && here > 0) {
        const std::int64_t end = std::int64_t{a.out.expert_offsets[local]} + here;
        if (end > rows) rows = end;
      }
    }
    const bool last_offset = a.out.layout == Layout::contiguous && threadIdx.x == 0 &&
                             a.out.expert_offsets[lane.placement.local_experts(me)] > a.out.capacity;
    return rows <= a.out.capacity && !last_offset;
  }
  __device__ __noinline__ void write_cut(const std::int32_t* totals) const {
    const std::int32_t* own = lane.placement.by_rank + lane.placement.first[lane.rank()];
    write_cut_counts(block, a.out, ranked() ? totals[experts + lane.rank()] : 0,
                     [&](std::int32_t local) { return totals[own[local]]; });
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

  // All threads: reads the ids of these entries, of a batch that begins with entry `first`, some token's k = 0.
  __device__ void read(Batch& batch, Range entries, std::int32_t first) const {
    for (std::int32_t e = entries.begin + static_cast<std::int32_t>(threadIdx.x); e < entries.end; e += kThreads) {
      batch.id[e - first] = keep(a.job, e, entry_of(a.in, e / topk, e % topk));
    }
  }

  // All threads: rows will go near the first row of their expert, so its address is looked up meanwhile.
  __device__ void prefetch_places(const Batch& batch, const Tables& tables, Range entries) const {
    const std::int32_t skip = entries.begin % topk;
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < entries.size(); i += kThreads) {
      const std::int32_t id = batch.id[skip + i];
      if (id < 0) continue;
      const std::ptrdiff_t there = lane.transport.peer_pointer(tables.rank(id)) - lane.heap;
      prefetch(a.out.x.at(tables.local(id), 0) + there);
      if (a.out.scale_columns > 0) prefetch(a.out.scales.at(tables.local(id), 0) + there);
    }
  }

  // All threads, after a barrier: numbers these entries and (own share) writes their rows.
  __device__ std::uint64_t move(Batch& batch, const Tables& tables, Range entries, bool mine) const {
    const std::int32_t first_token = entries.begin / topk, first = first_token * topk, skip = entries.begin - first;
    const std::int32_t tokens = (entries.end - first + topk - 1) / topk;
    const auto tid = static_cast<std::int32_t>(threadIdx.x);
    if (ranked()) {
      for (std::int32_t e = entries.begin + tid; e < entries.end; e += kThreads) {
        batch.key[e - first] = key_of_entry(tables, e);
      }
      __syncthreads();
    }
    if (tid < 32) number((ranked() ? batch.key : batch.id) + skip, entries.size(), tables.cursor, batch.number + skip);
    __syncthreads();
    std::uint64_t rows = 0;
    for (std::int32_t i = tid; i < tokens * topk; i += kThreads) {
      batch.to[i] = batch.scales_to[i] = nullptr;
      if (i < skip || first + i >= entries.end) continue;
      const std::int32_t place = batch.number[i] < a.out.capacity ? batch.number[i] : -1;
      lane.own<std::int32_t>(lane.at.own_places())[first + i] = place;
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
        const std::int32_t token = first_token + i / topk, id = id_of(a.in, experts, token, j);
        const bool here = id >= 0 && tables.rank(id) == rank;
        *reinterpret_cast<std::int32_t*>(a.out.ids.at(place, j) + there) = here ? tables.local(id) : -1;
        *reinterpret_cast<float*>(a.out.weights.at(place, j) + there) =
            here ? *reinterpret_cast<const float*>(a.in.weights.at(token, j)) : 0.0F;
      }
    }
    __syncthreads();
    if (mine) {
      copy_rows<2>(
          a.by, tokens, topk, {batch.to, lane.shape().row_bytes},
          [&](std::int32_t row) { return a.in.x.at(first_token + row); }, a.scales, batch.scales_to,
          [&](std::int32_t row) { return a.in.scales.at(first_token + row); });
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

// The first rows that the block will move, on their way from memory while the counts are awaited.
__device__ void prefetch_rows(const Input& in, Range entries, std::int32_t topk, std::int64_t row_bytes) {
  constexpr std::int64_t kLine = 128;
  if (entries.size() <= 0) return;
  const auto lines = static_cast<std::int32_t>((row_bytes + kLine - 1) / kLine);
  const std::int32_t first = entries.begin / topk, tokens = (entries.end + topk - 1) / topk - first;
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  for (std::int32_t i = tid; i < 2 * kThreads && i / lines < tokens; i += kThreads) {
    prefetch(in.x.at(first + i / lines) + i % lines * kLine);
  }
  if (in.scale_columns > 0 && tid < tokens) prefetch(in.scales.at(first + tid));
}

__global__ void __launch_bounds__(kThreads, 1) dispatch_direct_kernel(const __grid_constant__ DirectArgs a) {
  extern __shared__ std::int32_t shared[];
  __shared__ Batch batch;
  __shared__ std::int32_t tokens_of_source[PeerHandle::kMaxRanks], full;
  const Lane<PeerHandle>& lane = a.job.lane;
  const Shape& shape = lane.shape();
  const Block block(a.job);
  const bool dead = block.dead();
  const bool ranked = a.out.layout == Layout::ranked;
  const std::int32_t keys = shape.experts + (ranked ? shape.ranks : 0), topk = shape.topk;
  const Direct direct{a, lane, block, topk, shape.experts, keys};
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  fetch_arguments(a);

  // The tokens of every rank of the group in turn: all are numbered, the own are moved.
  const std::int32_t tokens = tokens_in(a.in).count;
  const int mine = shape.rank % shape.tp;
  const auto part = [&](int j) { return share_of(tokens, shape.tp, j); };
  const auto entries = [&](int j) { return entries_of(part(j), topk); };

  // First all loads, then what is done with them, so that they are on their way together: where experts are, the first
  // entries of the group, to be counted (not in the ranked layout, where more than the id counts), and the first of the
  // block's own batch.
  constexpr int kEarly = 2;
  std::int32_t early[kEarly];
  const std::uint32_t where = Tables::first_where(a.job);
#pragma unroll
  for (int u = 0; u < kEarly; ++u) {
    const std::int32_t e = tid + u * kThreads;
    early[u] = !ranked && e < tokens * topk ? id_of(a.in, shape.experts, e / topk, e % topk) : -1;
  }
  const Range first = entries(0), first_batch = batch_of(first, first.begin, topk);
  const std::int32_t own_entry = first_batch.begin + tid;
  Entry own_first{-1, 0};
  if (own_entry < first_batch.end) own_first = entry_of(a.in, own_entry / topk, own_entry % topk);
  prefetch_rows(a.in, entries(mine), topk, shape.row_bytes);
  const Tables tables(a.job, shared, keys);
  if (tid == 0) full = 0;
  tables.copy_where(a.job, shared, where);
  if (own_entry < first_batch.end) batch.id[own_entry - first.begin / topk * topk] = keep(a.job, own_entry, own_first);
  direct.read(batch, Range{first_batch.begin + kThreads, first_batch.end}, first.begin / topk * topk);
  const auto key_of_entry = [&](std::int32_t entry) { return direct.key_of_entry(tables, entry); };
  const auto count_entries = [&](Range of, std::int32_t* counters) {
    std::int32_t begin = of.begin;
    if (!ranked) {
#pragma unroll
      for (int u = 0; u < kEarly; ++u) {
        const std::int32_t e = tid + u * kThreads;
        if (e >= of.begin && e < of.end && early[u] >= 0) atomicAdd(&counters[early[u]], 1);
      }
      begin = of.begin > kEarly * kThreads ? of.begin : kEarly * kThreads;
    }
    count(Range{begin, of.end}, counters, key_of_entry);
  };
  if (!Block::fine(dead)) return;
  if (blockIdx.x == 0) {
    const Range share{part(mine).begin * topk, (part(mine).begin + part(mine).count) * topk};
    count_entries(share, tables.total);
    // Ranked: counts of experts are the receiver's numbers of pairs.
    if (ranked) count(share, tables.total, [&](std::int32_t i) { return id_of(a.in, shape.experts, i / topk, i % topk); });
    __syncthreads();
    direct.publish(tables.total, tokens);
  }
  count_entries(Range{0, first.begin}, tables.cursor);
  __syncthreads();
  if (a.out.layout == Layout::padded) direct.prefetch_places(batch, tables, first_batch);
  block.wait_begins();
  int found = direct.gather(tables, tokens_of_source);
  found = __syncthreads_or(found);
  block.wait_ends();
  if (shape.tp > 1) {
    const bool differs =
        tid < shape.ranks && found == 0 && tokens_of_source[tid] != tokens_of_source[tid / shape.tp * shape.tp];
    found = __syncthreads_or(differs ? Direct::odd : found);
  }
  if (found != 0) {
    if (found == Direct::odd && tid < shape.ranks) direct.agrees(tid);
    return;
  }
  const bool tells = blockIdx.x == gridDim.x - 1;
  if (a.out.layout == Layout::contiguous) {
    direct.add_firsts(tables, tells);
    __syncthreads();
  }
  if (tells && !direct.write_counts_out(tables)) full = 1;

  std::uint64_t rows = 0;
  for (int j = 0; j < shape.tp; ++j) {
    const Range own = entries(j);
    if (j > 0) {
      __syncthreads();
      count(Range{entries(j - 1).end, own.begin}, tables.cursor, key_of_entry);
    }
    for (Range these = batch_of(own, own.begin, topk); these.size() > 0; these = batch_of(own, these.end, topk)) {
      if (j > 0 || these.begin > own.begin) {
        __syncthreads();
        direct.read(batch, these, these.begin / topk * topk);
        __syncthreads();
      }
      rows += direct.move(batch, tables, these, j == mine);
    }
  }
  if (tells) {
    __syncthreads();
    if (tid == 0 && full != 0) direct.write_cut(tables.total);
  }

  const std::uint64_t needed = pack(block.epoch + 1, 0);
  if (block.last_and_signal(lane.at.signal(Signal::dispatch, shape.rank),
                            needed | dispatch_payload(WireWay::direct, tokens))) {
    bool failed = false;
    if (tid < shape.ranks) {
      std::uint64_t word = 0;
      failed = !block.wait_for({lane.at.signal(Signal::dispatch, tid), needed, kEpochMask, tid}, Phase::dispatch, word);
    }
    if (tid == kThreads - 1) {  // meanwhile
      tell_bad_input(block, a.in);
      LaneState& state = lane.state();
      state.epoch = block.epoch + 1;
      state.tokens = tokens;
      state.dropped = 0;
    }
    if (!Block::fine(failed)) return;
    if (ranked && *a.out.row_count < tables.total[shape.experts + shape.rank]) count_pairs_left(a.out, lane);
  }
  block.end(rows * static_cast<std::uint64_t>(shape.slot_bytes()));
}

}  // namespace

void launch_dispatch_direct(const DirectArgs& args, const Launch& launch) {
  run(dispatch_direct_kernel, args, launch);
}

}  // namespace moelane::gpu
