#pragma once

#include "gpu/kernels.hpp"
#include "protocol/dispatch_put.hpp"

// What the blocks of a receiver do, in the order of the kernel (dispatch_receive.cu).
namespace moelane::gpu {

// The receiver's view of what has come. The tokens of all sources are numbered through, in the order of rows.
template <bool ranked, bool in_shared>
struct Receive {
  const ReceiveArgs& a;
  const Lane<PeerHandle>& lane;
  const Block& block;
  const Tables<in_shared>& tables;
  ByTopk by;
  const std::int32_t* first;  // [ranks + 1]: each source's first token
  std::uint16_t* staged;      // [tokens, topk]: local experts, or kElsewhere
  std::int32_t topk, tokens;
  static constexpr std::uint16_t kElsewhere = 0xFFFF;

  // Ranked: the key by which all tokens that are here are numbered.
  __device__ std::int32_t row_key() const { return lane.placement.local_experts(lane.rank()); }

  struct Token {
    int source;
    std::int32_t number;  // in its source
  };
  __device__ Token token(std::int32_t t) const {
    int source = 0;
#pragma unroll 1
    while (t >= first[source + 1]) ++source;
    return {source, t - first[source]};
  }

  __device__ const std::int32_t* id_at(std::int32_t entry) const {
    const Token of = token(by.quotient(entry));
    return lane.own<const std::int32_t>(lane.at.routing_ids(of.source)) + of.number * topk +
           by.remainder(entry);
  }
  // The number of the local expert of an entry, or -1.
  __device__ std::int32_t look_up(std::int32_t entry) const {
    const std::int32_t id = *id_at(entry);
    return id >= 0 && tables.rank(id) == lane.rank() ? tables.local(id) : -1;
  }
  __device__ bool all_staged() const { return tokens * topk <= kStaged; }
  // All threads: the warps take the sources' entries in turn, a few from each lane, whose loads are on their
  // way together.
  __device__ void stage() const {
    constexpr int kTogether = 8, kPiece = 32 * kTogether, kWarps = kThreads / 32;
    const auto warp = static_cast<std::int32_t>(threadIdx.x / 32),
               thread = static_cast<std::int32_t>(threadIdx.x % 32);
    std::int32_t turn = 0;  // whose it is next
#pragma unroll 1
    for (int source = 0; source < lane.shape().ranks; ++source) {
      const auto* ids = lane.own<const std::int32_t>(lane.at.routing_ids(source));
      const std::int32_t n = (first[source + 1] - first[source]) * topk, pieces = (n + kPiece - 1) / kPiece;
      std::uint16_t* to = staged + first[source] * topk;
#pragma unroll 1
      for (std::int32_t piece = warp >= turn ? warp - turn : warp - turn + kWarps; piece < pieces;
           piece += kWarps) {
        std::int32_t id[kTogether];
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
          const std::int32_t i = piece * kPiece + u * 32 + thread;
          id[u] = i < n ? ids[i] : -1;
        }
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
          const std::int32_t i = piece * kPiece + u * 32 + thread;
          const std::uint32_t where = id[u] < 0 ? ~0U : tables.where[id[u]];
          const bool here = rank_of(where) == lane.rank();
          if (i < n) to[i] = here ? static_cast<std::uint16_t>(local_of(where)) : kElsewhere;
        }
      }
      turn = (turn + pieces) % kWarps;
    }
  }
  __device__ std::int32_t local(std::int32_t entry) const {
    if (!all_staged()) return look_up(entry);
    return staged[entry] == kElsewhere ? -1 : staged[entry];
  }

  __device__ bool first_here(std::int32_t entry) const {
#pragma unroll 1
    for (std::int32_t j = entry - by.remainder(entry); j < entry; ++j) {
      if (local(j) >= 0) return false;
    }
    return true;
  }
  // The key by which an entry's row is numbered; -1: no row.
  __device__ std::int32_t key(std::int32_t entry) const {
    const std::int32_t here = local(entry);
    return here < 0 || !ranked ? here : first_here(entry) ? row_key() : -1;
  }

  // All threads: the tokens that this block takes, so that all blocks have about as many rows.
  __device__ Range share_rows() const {
    __shared__ std::int32_t before[kThreads / 32 + 1], bound[2];
    const auto tid = static_cast<std::int32_t>(threadIdx.x);
    const Range own = slice_of(tokens, kThreads, threadIdx.x);
    const auto rows_of = [&](std::int32_t t) {
      std::int32_t rows = 0;
#pragma unroll 4
      for (std::int32_t k = 0; k < topk; ++k) rows += key(t * topk + k) >= 0 ? 1 : 0;
      return rows;
    };
    std::int32_t rows = 0;
#pragma unroll 1
    for (std::int32_t t = own.begin; t < own.end; ++t) rows += rows_of(t);
    const std::int32_t sum = warp_sum_up_to(rows);
    if (tid % 32 == 31) before[tid / 32 + 1] = sum;
    if (tid == 0) before[0] = 0;
    if (tid == 0) bound[0] = bound[1] = tokens;
    __syncthreads();
    if (tid < 32) {
      prefix(
          Range{0, kThreads / 32}, [&](std::int32_t i) { return before[i + 1]; },
          [&](std::int32_t i, std::int32_t all_before) { before[i + 1] += all_before; });
    }
    __syncthreads();
    std::int32_t row = before[tid / 32] + sum - rows;  // of the first of these tokens
    const Range wanted = slice_of(before[kThreads / 32], gridDim.x, blockIdx.x);
    const bool here =
        (row <= wanted.begin && wanted.begin < row + rows) || (row <= wanted.end && wanted.end < row + rows);
#pragma unroll 1
    for (std::int32_t t = own.begin; here && t < own.end; ++t) {
      const std::int32_t next = row + rows_of(t);
      if (row <= wanted.begin && wanted.begin < next) bound[0] = t;
      if (row <= wanted.end && wanted.end < next) bound[1] = t;
      row = next;
    }
    __syncthreads();
    return {blockIdx.x == 0 ? 0 : bound[0], blockIdx.x == gridDim.x - 1 ? tokens : bound[1]};
  }

  // All threads: adds the rows of these entries.
  __device__ void add(std::int32_t entries, std::int32_t* counters) const {
    constexpr std::int32_t kPack = 8;  // staged entries that are read at once
    std::int32_t packed = 0;
    if (!ranked && all_staged()) {
      packed = entries / kPack * kPack;
#pragma unroll 1
      for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x) * kPack; i < packed;
           i += kThreads * kPack) {
        const uint4 pack = *reinterpret_cast<const uint4*>(staged + i);
        const std::uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
        for (const std::uint32_t word : words) {
          if ((word & 0xFFFF) != kElsewhere) atomicAdd(&counters[word & 0xFFFF], 1);
          if (word >> 16 != kElsewhere) atomicAdd(&counters[word >> 16], 1);
        }
      }
    }
    count(Range{packed, entries}, counters, [&](std::int32_t entry) { return key(entry); });
  }
  // Ranked layout: adds the (row, k) pairs of the rows that find room.
  __device__ __noinline__ void add_pairs() const {
    __shared__ std::int32_t end;
    __syncthreads();
    if (threadIdx.x == 0) {
      end = tokens * topk;
      std::int32_t rows = 0;
      for (std::int32_t i = 0; i < end && tables.total[row_key()] > a.out.capacity; ++i) {
        if (key(i) >= 0 && rows++ == a.out.capacity) end = i - by.remainder(i);
      }
    }
    __syncthreads();
    count(Range{0, end}, tables.total, [&](std::int32_t i) { return local(i); });
  }

  // Contiguous layout, one warp: where each expert begins.
  __device__ __noinline__ void add_firsts(bool write_out) const {
    const std::int32_t locals = lane.placement.local_experts(lane.rank()), alignment = a.out.alignment;
    const std::int32_t end = prefix(
        Range{0, locals},
        [&](std::int32_t i) { return (tables.total[i] + alignment - 1) / alignment * alignment; },
        [&](std::int32_t i, std::int32_t first_row) {
          tables.cursor[i] += first_row;
          if (write_out) a.out.expert_offsets[i] = first_row;
        });
    if (write_out && threadIdx.x % 32 == 0) a.out.expert_offsets[locals] = end;
  }
  // All threads of one block, after a barrier: the caller's counts. Whether all rows find room, as far as
  // this thread knows.
  __device__ bool write_counts_out() const {
    const std::int32_t locals = lane.placement.local_experts(lane.rank());
    bool room = true;
    if (threadIdx.x == 0 && ranked) {
      *a.out.row_count = tables.total[row_key()];
      room = tables.total[row_key()] <= a.out.capacity;
    }
    if (threadIdx.x == 0 && a.out.layout == Layout::contiguous)
      room = a.out.expert_offsets[locals] <= a.out.capacity;
#pragma unroll 1
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < locals; i += kThreads) {
      a.out.expert_counts[i] = tables.total[i];
      if (a.out.layout == Layout::padded) room = room && tables.total[i] <= a.out.capacity;
    }
    return room;
  }

  // Ranked layout: the ids and weights that go with a row.
  __device__ __noinline__ void write_routing(const Token& of, std::int32_t entry, std::int32_t place) const {
    const auto* weights = lane.own<const float>(lane.at.routing_weights(of.source)) + of.number * topk;
    for (std::int32_t j = 0; j < topk; ++j) {
      const std::int32_t here = local(entry + j);
      *reinterpret_cast<std::int32_t*>(a.out.ids.at(place, j)) = here;
      *reinterpret_cast<float*>(a.out.weights.at(place, j)) = here < 0 ? 0.0F : weights[j];
    }
  }

  // All threads: places the tokens [begin, end), at most a batch, and copies their rows.
  __device__ std::uint64_t move(Batch& batch, Range these) const {
    __shared__ std::int32_t listed, list_begin;
    const auto tid = static_cast<std::int32_t>(threadIdx.x);
    const std::int32_t n = these.size() * topk, entry = these.begin * topk;
    if (tid == 0) listed = 0;
#pragma unroll 1
    for (std::int32_t i = tid; i < n; i += kThreads) batch.key[i] = key(entry + i);
    __syncthreads();
    if (tid < 32) number(batch.key, n, tables.cursor, batch.number);
    __syncthreads();
    std::uint64_t rows = 0;
#pragma unroll 1
    for (std::int32_t i = tid; i < n; i += kThreads) {
      const Token of = token(these.begin + by.quotient(i));
      const std::int32_t k = by.remainder(i), expert = local(entry + i);
      const std::int32_t place = batch.number[i] < a.out.capacity ? batch.number[i] : -1;
      lane.own<std::int32_t>(lane.at.places(of.source))[of.number * topk + k] = place;
      batch.to[i] = batch.scales_to[i] = nullptr;
      // What combine answers: rows, or (partial sums) tokens that are here, with or without a row.
      const bool answers = a.partial_sums ? expert >= 0 && first_here(entry + i) : place >= 0;
      batch.id[i] = answers ? atomicAdd(&listed, 1) : -1;
      if (place < 0) continue;
      ++rows;
      batch.to[i] = a.out.x.at(expert, place);
      if (a.out.scale_columns > 0) batch.scales_to[i] = a.out.scales.at(expert, place);
      if (ranked) write_routing(of, entry + i - k, place);
    }
    __syncthreads();
    // Where each token's row lies; tokens that are not here are not read.
    const auto** from = reinterpret_cast<const std::byte**>(batch.number);
    static_assert(sizeof batch.number >= sizeof(std::byte*) * (kBatch / 2) && alignof(Batch) == 8);
    for (std::int32_t row = tid; row < these.size(); row += kThreads) {
      bool here = false;
#pragma unroll 1
      for (std::int32_t k = 0; k < topk; ++k) here = here || batch.to[row * topk + k] != nullptr;
      const Token of = token(these.begin + row);
      from[row] = here ? lane.heap + lane.at.slot(of.source, of.number) : nullptr;
    }
    __syncthreads();
    if (tid == kThreads - 1) list_begin = atomicAdd(&lane.state().received, listed);  // needed only below
    copy_rows<4>(
        a.by, these.size(), topk, {batch.to, lane.shape().row_bytes},
        [&](std::int32_t row) { return from[row]; }, a.scales, batch.scales_to,
        [&](std::int32_t row) -> const std::byte* {
          return from[row] == nullptr ? nullptr : from[row] + lane.shape().scale_offset();
        });
    __syncthreads();
#pragma unroll 1
    for (std::int32_t i = tid; i < n; i += kThreads) {
      if (batch.id[i] < 0) continue;
      const Token of = token(these.begin + by.quotient(i));
      lane.own<std::int32_t>(lane.at.received())[list_begin + batch.id[i]] =
          (of.source * lane.shape().share + of.number) * topk + by.remainder(i);
    }
    __syncthreads();
    return rows;
  }
};

}  // namespace moelane::gpu
