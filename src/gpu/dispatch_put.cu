#include "gpu/kernels.hpp"
#include "gpu/routing.cuh"
#include "protocol/dispatch_put.hpp"

// Dispatch, put way. The sender writes one row for each token and destination rank into the destination's slot, then
// its ids to every rank, then one signal; it never waits. The receiver reads the ids of all, places the rows and copies
// them there, and lists them for combine.
namespace moelane::gpu {
namespace {

// By the threads of all blocks: the routing of the own share, to the peers' blocks for this source.
__device__ void send_routing(const SendArgs& a, std::int32_t tokens) {
  const Lane<PeerHandle>& lane = a.job.lane;
  const Shape& shape = lane.shape();
  const Share share = lane.own_share(tokens);
  const auto thread = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  const auto threads = static_cast<std::int32_t>(gridDim.x * kThreads);
  for (std::int32_t i = thread; i < share.count * shape.topk; i += threads) {
    const std::int32_t token = share.begin + i / shape.topk, k = i % shape.topk;
    const std::int32_t id = id_of(a.in, shape.experts, token, k);
    const float weight = shape.weights ? *reinterpret_cast<const float*>(a.in.weights.at(token, k)) : 0;
    for (int p = 1; p <= shape.ranks; ++p) {
      std::byte* const to = lane.transport.peer_pointer((shape.rank + p) % shape.ranks);
      reinterpret_cast<std::int32_t*>(to + lane.at.routing_ids(shape.rank))[i] = id;
      if (shape.weights) reinterpret_cast<float*>(to + lane.at.routing_weights(shape.rank))[i] = weight;
    }
  }
  if (thread < shape.ranks) {
    std::byte* const to = lane.transport.peer_pointer(thread);
    reinterpret_cast<RoutingHeader*>(to + lane.at.routing(shape.rank))->fingerprint = lane.placement.fingerprint;
  }
}

__global__ void __launch_bounds__(kThreads, 1) dispatch_send_kernel(const __grid_constant__ SendArgs a) {
  __shared__ Batch batch;
  const Lane<PeerHandle>& lane = a.job.lane;
  const Shape& shape = lane.shape();
  const Block block(a.job);
  if (block.dead()) return;
  const std::int32_t tokens = tokens_in(a.in).count, topk = shape.topk, most = kBatch / topk;
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  send_routing(a, tokens);
  const Range kept = slice_of(tokens * topk, gridDim.x, blockIdx.x);
  for (std::int32_t i = kept.begin + tid; i < kept.end; i += kThreads) keep(a.job, a.in, i / topk, i % topk);

  const Share share = lane.own_share(tokens);
  const Range own = slice_of(share.count, gridDim.x, blockIdx.x);
  std::uint64_t rows = 0;
  for (std::int32_t first = own.begin; first < own.end; first += most) {
    const std::int32_t n = own.end - first < most ? own.end - first : most;
    for (std::int32_t i = tid; i < n * topk; i += kThreads) {
      batch.id[i] = id_of(a.in, shape.experts, share.begin + first + i / topk, i % topk);
    }
    __syncthreads();
    for (std::int32_t i = tid; i < n * topk; i += kThreads) {
      const std::int32_t peer = new_rank(lane.placement, batch.id + i / topk * topk, i % topk);
      batch.to[i] = batch.scales_to[i] = nullptr;
      if (peer < 0) continue;
      ++rows;
      batch.to[i] = lane.transport.peer_pointer(peer) + lane.at.slot(shape.rank, first + i / topk);
      batch.scales_to[i] = batch.to[i] + shape.scale_offset();
    }
    __syncthreads();
    copy_rows<2>(a.by, n, topk, batch.to, shape.row_bytes,
                 [&](std::int32_t row) { return a.in.x.at(share.begin + first + row); });
    copy_all_scales(a.scales, n, topk, batch.scales_to,
                    [&](std::int32_t row) { return a.in.scales.at(share.begin + first + row); });
    __syncthreads();
  }
  if (block.last_and_signal(lane.at.signal(Signal::dispatch, shape.rank),
                            pack(block.epoch + 1, dispatch_payload(WireWay::put, tokens))) &&
      tid == 0) {
    tell_bad_input(block, a.in);
  }
  block.end(rows * static_cast<std::uint64_t>(shape.slot_bytes()));
}

// The receiver's view of what has come. The tokens of all sources are numbered through, in the order of rows.
struct Receive {
  const ReceiveArgs& a;
  const Lane<PeerHandle>& lane;
  const Block& block;
  const Tables& tables;
  const std::int32_t* first;  // [ranks + 1]: each source's first token
  std::int32_t topk;

  // One thread, one source: waits, and checks what it says.
  __device__ bool await_source(int source) const {
    const Shape& shape = lane.shape();
    const std::uint64_t needed = pack(block.epoch + 1, 0);
    std::uint64_t word = 0, group = 0;
    const auto wait = [&](int of, std::uint64_t& seen) {
      return block.wait_for({lane.at.signal(Signal::dispatch, of), needed, kEpochMask, of,
                             shape.direct ? lane.at.signal(Signal::counts, of) : 0},
                            Phase::dispatch, seen);
    };
    const int leader = source / shape.tp * shape.tp;
    if (!wait(source, word) || !wait(leader, group)) return false;
    if (way_of(word) != WireWay::put) return block.refuse_peer(Fault::other_way, Phase::dispatch, source, word, needed);
    const std::uint64_t print = lane.own<const RoutingHeader>(lane.at.routing(source))->fingerprint;
    if (print != lane.placement.fingerprint) {
      return block.refuse_peer(Fault::other_placement, Phase::dispatch, source, print, lane.placement.fingerprint);
    }
    const std::int32_t tokens = tokens_of(word), groups = tokens_of(group);
    if (tokens != groups || tokens > shape.max_tokens) {
      return block.refuse_peer(Fault::other_tokens, Phase::dispatch, source, static_cast<std::uint64_t>(tokens),
                               static_cast<std::uint64_t>(groups));
    }
    return true;
  }

  __device__ bool ranked() const { return a.out.layout == Layout::ranked; }
  // Ranked: the key by which all tokens that are here are numbered.
  __device__ std::int32_t row_key() const { return lane.placement.local_experts(lane.rank()); }

  struct Token {
    int source;
    std::int32_t number;  // in its source
    const std::int32_t* ids;
  };
  __device__ Token token(std::int32_t t) const {
    int source = 0;
    while (t >= first[source + 1]) ++source;
    const std::int32_t number = t - first[source];
    return {source, number, lane.own<const std::int32_t>(lane.at.routing_ids(source)) + number * topk};
  }
  // The number of the local expert, or -1.
  __device__ std::int32_t local(std::int32_t id) const {
    return id >= 0 && tables.rank(id) == lane.rank() ? tables.local(id) : -1;
  }

  // Calls visit(key) for every row that token `t` has here; loads of several ids are on their way together.
  template <class Visit>
  __device__ void rows_of(std::int32_t t, bool pairs, const Visit& visit) const {
    constexpr int kTogether = 8;
    const std::int32_t* ids = token(t).ids;
    for (std::int32_t k = 0; k < topk; k += kTogether) {
      std::int32_t id[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) id[j] = k + j < topk ? ids[k + j] : -1;
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const std::int32_t here = local(id[j]);
        if (here < 0) continue;
        visit(pairs ? here : row_key());
        if (!pairs) return;
      }
    }
  }
  // All threads: adds the rows of the tokens [begin, end).
  __device__ void add(Range tokens, std::int32_t* counters, bool pairs) const {
    for (std::int32_t t = tokens.begin + static_cast<std::int32_t>(threadIdx.x); t < tokens.end; t += kThreads) {
      rows_of(t, pairs, [&](std::int32_t key) { atomicAdd(&counters[key], 1); });
    }
  }

  // All threads: which tokens this block takes, so that all blocks have about as many rows.
  __device__ Range share_rows(std::int32_t tokens) const {
    __shared__ std::int32_t before[kThreads / 32 + 1], bound[2];
    const auto tid = static_cast<std::int32_t>(threadIdx.x);
    const Range own = slice_of(tokens, kThreads, threadIdx.x);
    std::int32_t rows = 0;
    for (std::int32_t t = own.begin; t < own.end; ++t) rows_of(t, !ranked(), [&](std::int32_t) { ++rows; });
    std::int32_t sum = rows;
    for (int step = 1; step < 32; step *= 2) {
      const std::int32_t below = __shfl_up_sync(~0U, sum, step);
      if (tid % 32 >= step) sum += below;
    }
    if (tid % 32 == 31) before[tid / 32 + 1] = sum;
    if (tid == 0) before[0] = 0;
    __syncthreads();
    if (tid == 0) {
      for (int w = 0; w < kThreads / 32; ++w) before[w + 1] += before[w];
      bound[0] = bound[1] = tokens;
    }
    __syncthreads();
    const std::int32_t all = before[kThreads / 32];
    std::int32_t row = before[tid / 32] + sum - rows;  // of the first of these tokens
    const Range wanted = slice_of(all, gridDim.x, blockIdx.x);
    for (std::int32_t t = own.begin; t < own.end; ++t) {
      std::int32_t next = row;
      rows_of(t, !ranked(), [&](std::int32_t) { ++next; });
      // The token that has the first row of the block.
      if (row <= wanted.begin && wanted.begin < next) bound[0] = t;
      if (row <= wanted.end && wanted.end < next) bound[1] = t;
      row = next;
    }
    __syncthreads();
    return {blockIdx.x == 0 ? 0 : bound[0], blockIdx.x == gridDim.x - 1 ? tokens : bound[1]};
  }

  // Ranked layout: adds the (row, k) pairs of the rows that find room.
  __device__ void add_pairs(std::int32_t tokens) const {
    __shared__ std::int32_t end;
    __syncthreads();
    if (threadIdx.x == 0) {
      end = tokens;
      std::int32_t rows = 0;
      for (std::int32_t t = 0; t < end && tables.total[row_key()] > a.out.capacity; ++t) {
        rows_of(t, false, [&](std::int32_t) {
          if (rows++ == a.out.capacity) end = t;
        });
      }
    }
    __syncthreads();
    add(Range{0, end}, tables.total, true);
  }

  // One warp: the caller's counts and offsets.
  __device__ __noinline__ void write_out_counts() const {
    Report report;
    write_counts_together(
        block, a.out, ranked() ? tables.total[row_key()] : 0,
        [&](std::int32_t local_expert) { return tables.total[local_expert]; }, report);
    if (threadIdx.x % 32 == 0) lane.state().dropped = report.fault == Fault::overflow ? 1 : 0;
    if (report.fault != Fault::none) block.tell(report);
  }

  // All threads: places the tokens [begin, end), at most a batch, and copies their rows.
  __device__ std::uint64_t move(Batch& batch, Range tokens) const {
    __shared__ std::int32_t listed, list_begin;
    const auto tid = static_cast<std::int32_t>(threadIdx.x);
    const std::int32_t n = (tokens.end - tokens.begin) * topk;
    if (tid == 0) listed = 0;
    for (std::int32_t i = tid; i < n; i += kThreads) {
      batch.id[i] = token(tokens.begin + i / topk).ids[i % topk];
    }
    __syncthreads();
    const auto first_here = [&](std::int32_t i) {
      for (std::int32_t j = i - i % topk; j < i; ++j) {
        if (local(batch.id[j]) >= 0) return false;
      }
      return true;
    };
    for (std::int32_t i = tid; i < n; i += kThreads) {
      const std::int32_t here = local(batch.id[i]);
      batch.key[i] = here < 0 || !ranked() ? here : first_here(i) ? row_key() : -1;
    }
    __syncthreads();
    if (tid < 32) number(batch.key, n, tables.cursor, batch.number);
    __syncthreads();
    std::uint64_t rows = 0;
    for (std::int32_t i = tid; i < n; i += kThreads) {
      const Token of = token(tokens.begin + i / topk);
      const std::int32_t k = i % topk, expert = local(batch.id[i]);
      const std::int32_t place = batch.number[i] < a.out.capacity ? batch.number[i] : -1;
      lane.own<std::int32_t>(lane.at.places(of.source))[of.number * topk + k] = place;
      batch.to[i] = batch.scales_to[i] = nullptr;
      // What combine answers: rows, or (partial sums) tokens that are here, with or without a row.
      const bool answers = a.partial_sums ? expert >= 0 && first_here(i) : place >= 0;
      batch.number[i] = answers ? atomicAdd(&listed, 1) : -1;
      if (place < 0) continue;
      ++rows;
      batch.to[i] = a.out.x.at(expert, place);
      if (a.out.scale_columns > 0) batch.scales_to[i] = a.out.scales.at(expert, place);
      const auto* weights = lane.own<const float>(lane.at.routing_weights(of.source)) + of.number * topk;
      for (std::int32_t j = 0; ranked() && j < topk; ++j) {
        const std::int32_t here = local(batch.id[i - k + j]);
        *reinterpret_cast<std::int32_t*>(a.out.ids.at(place, j)) = here;
        *reinterpret_cast<float*>(a.out.weights.at(place, j)) = here < 0 ? 0.0F : weights[j];
      }
    }
    __syncthreads();
    if (tid == 0) list_begin = atomicAdd(&lane.state().received, listed);
    __syncthreads();
    for (std::int32_t i = tid; i < n; i += kThreads) {
      if (batch.number[i] < 0) continue;
      const Token of = token(tokens.begin + i / topk);
      lane.own<std::int32_t>(lane.at.received())[list_begin + batch.number[i]] =
          (of.source * lane.shape().share + of.number) * topk + i % topk;
    }
    // Tokens that are not here are not read.
    const auto slot = [&](std::int32_t row, std::int64_t offset) -> const std::byte* {
      bool here = false;
      for (std::int32_t k = 0; k < topk; ++k) here = here || batch.to[row * topk + k] != nullptr;
      if (!here) return nullptr;
      const Token of = token(tokens.begin + row);
      return lane.heap + lane.at.slot(of.source, of.number) + offset;
    };
    copy_rows<4>(a.by, tokens.end - tokens.begin, topk, batch.to, lane.shape().row_bytes,
                 [&](std::int32_t row) { return slot(row, 0); });
    copy_all_scales(a.scales, tokens.end - tokens.begin, topk, batch.scales_to,
                    [&](std::int32_t row) { return slot(row, lane.shape().scale_offset()); });
    __syncthreads();
    return rows;
  }
};

__global__ void __launch_bounds__(kThreads, 1) dispatch_receive_kernel(const __grid_constant__ ReceiveArgs a) {
  extern __shared__ std::int32_t shared[];
  __shared__ Batch batch;
  __shared__ std::int32_t first[PeerHandle::kMaxRanks + 1];
  const Lane<PeerHandle>& lane = a.job.lane;
  const Shape& shape = lane.shape();
  const Block block(a.job);
  if (block.dead()) return;
  const Tables tables(a.job, shared, shape.experts + shape.ranks);
  const Receive receive{a, lane, block, tables, first, shape.topk};
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  block.wait_begins();
  if (!Block::fine(tid < shape.ranks && !receive.await_source(tid))) return;
  block.wait_ends();
  if (tid == 0) {
    first[0] = 0;
    for (int source = 0; source < shape.ranks; ++source) first[source + 1] = first[source] + received_share(lane, source).count;
  }
  __syncthreads();

  const std::int32_t tokens = first[shape.ranks], most = kBatch / shape.topk;
  const Range own = receive.share_rows(tokens);
  receive.add(Range{0, own.begin}, tables.cursor, !receive.ranked());
  // Contiguous: experts begin where the rows of those before end, so that every block needs all totals.
  const bool counts = blockIdx.x == gridDim.x - 1;
  if (counts || a.out.layout == Layout::contiguous) {
    receive.add(Range{0, tokens}, tables.total, !receive.ranked());
    if (receive.ranked()) receive.add_pairs(tokens);
  }
  __syncthreads();
  if (a.out.layout == Layout::contiguous && tid < 32) {
    add_offsets(
        Range{0, lane.placement.local_experts(shape.rank)}, tables.cursor, [](std::int32_t i) { return i; },
        [&](std::int32_t i) { return static_cast<std::int32_t>(aligned(tables.total[i], a.out.alignment)); });
  }
  if (counts && tid >= kThreads - 32) receive.write_out_counts();
  __syncthreads();
  std::uint64_t rows = 0;
  for (std::int32_t t = own.begin; t < own.end; t += most) {
    rows += receive.move(batch, Range{t, t + most < own.end ? t + most : own.end});
  }
  if (block.last() && tid == 0) {
    LaneState& state = lane.state();
    state.epoch = block.epoch + 1;
    state.tokens = tokens_of(*lane.own<const std::uint64_t>(lane.at.signal(Signal::dispatch, shape.rank)));
  }
  block.end(rows * static_cast<std::uint64_t>(shape.slot_bytes()));
}

}  // namespace

void launch_dispatch_send(const SendArgs& args, const Launch& launch) { run(dispatch_send_kernel, args, launch); }
void launch_dispatch_receive(const ReceiveArgs& args, const Launch& launch) {
  run(dispatch_receive_kernel, args, launch);
}

}  // namespace moelane::gpu
