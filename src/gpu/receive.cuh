#pragma once

#include "gpu/counts_out.cuh"
#include "gpu/far.cuh"
#include "gpu/kernels.cuh"
#include "gpu/tables.cuh"
#include "protocol/dispatch_put.hpp"

// What the blocks of a receiver do, in the order of the kernel (dispatch_receive.cuh).
namespace moelane::gpu {

// The receiver's view of what has come. The tokens of all sources are numbered through, in the order of rows.
template <DeviceTransport T, bool ranked, bool in_shared>
struct Receive {
  const ReceiveArgs<T>& a;
  const Lane<T>& lane;
  const Block<T>& block;
  const Tables<T, in_shared>& tables;
  TopkDivider divider;
  const std::int32_t* first;  // [ranks + 1]: each source's first token
  std::int32_t topk, tokens;

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

  // The number of the local expert of an entry of a source, or -1.
  __device__ std::int32_t look_up(const std::int32_t* ids, std::int32_t entry) const {
    const std::int32_t id = ids[entry];
    if (id < 0) return -1;
    const std::uint32_t where = tables.where[id];
    return rank_of(where) == lane.rank() ? local_of(where) : -1;
  }
  __device__ const std::int32_t* ids_of(int source) const {
    return lane.template own<const std::int32_t>(lane.at.routing_ids(source));
  }

  // All threads: adds what the sources have counted to the totals, and that of those before `source` to the
  // cursors.
  __device__ void add_counts(int source) const {
    const std::int32_t locals = row_key(), keys = locals + (ranked ? 1 : 0);
    const std::int32_t* experts = lane.placement.by_rank + lane.placement.first[lane.rank()];
#pragma unroll 1
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < lane.shape().ranks * keys;
         i += kThreads) {
      const std::int32_t of = i / keys, key = i - of * keys;
      const std::int32_t word = kHasFar<T>     ? far_count_word(lane, lane.rank(), key)
                                : key < locals ? experts[key]
                                               : lane.shape().experts + lane.rank();
      const auto rows = static_cast<std::int32_t>(
          payload_of(lane.template own<const std::uint64_t>(lane.at.counts(of))[word]));
      if (rows == 0) continue;
      atomicAdd(&tables.total[key], rows);
      if (of < source) atomicAdd(&tables.cursor[key], rows);
    }
  }
  // All threads: adds the rows of a source's first `n` entries to the cursors.
  __device__ void add_before(int source, std::int32_t n) const {
    const std::int32_t* ids = ids_of(source);
    count(Range{0, n}, tables.cursor, [&](std::int32_t i) {
      const std::int32_t here = look_up(ids, i);
      bool counts = here >= 0;
      for (std::int32_t j = i - divider.remainder(i); ranked && counts && j < i; ++j)
        counts = look_up(ids, j) < 0;
      return !counts ? -1 : ranked ? row_key() : here;
    });
  }
  // Ranked layout, when not all rows find room: counts anew, the (row, k) pairs of those that do.
  __device__ __noinline__ void count_pairs_left() const {
    __shared__ std::int32_t end;
    const std::int32_t locals = row_key();
    const auto local = [&](std::int32_t entry) {
      const Token of = token(divider.quotient(entry));
      return look_up(ids_of(of.source), of.number * topk + divider.remainder(entry));
    };
    __syncthreads();
    clear(tables.total, locals);
    if (threadIdx.x == 0) {
      end = 0;
      for (std::int32_t t = 0, rows = 0; t < tokens; ++t) {
        bool here = false;
        for (std::int32_t k = 0; k < topk; ++k) here = here || local(t * topk + k) >= 0;
        if (here && rows++ == a.out.capacity) break;
        end = (t + 1) * topk;
      }
    }
    __syncthreads();
    count(Range{0, end}, tables.total, local);
  }

  // How many rows a far source has sent to this rank when this step's have come, in all steps.
  __device__ std::uint64_t far_rows_of(int source) const {
    const auto* counts = lane.template own<const std::uint64_t>(lane.at.counts(source));
    return *lane.template own<const std::uint64_t>(lane.at.expected(0, source)) +
           payload_of(counts[far_count_word(lane, lane.rank(), row_key())]);
  }
  // One thread, one source: waits for rows that its signal does not cover.
  __device__ bool await_far_rows(int source) const {
    std::uint64_t word = 0;
    return !is_far(lane, source) ||
           block.wait_for({lane.at.signal(Signal::rows, source), far_rows_of(source), kCounterMask, source},
                          Phase::rows, word);
  }

  // Contiguous layout, one warp: where each expert begins.
  __device__ __noinline__ void add_own_firsts(bool write_out) const {
    add_firsts(
        tables, Range{0, row_key()}, a.out.alignment, [](std::int32_t i) { return i; },
        write_out ? a.out.expert_offsets : nullptr);
  }
  // All threads of one block, after a barrier: the caller's counts. Whether all rows find room, as far as
  // this thread knows.
  __device__ bool write_counts() const {
    return write_counts_out<ranked>(
        a.out, ranked ? tables.total[row_key()] : 0, row_key(), [&](const auto& write) {
#pragma unroll 1
          for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < row_key(); i += kThreads)
            write(i, tables.total[i]);
        });
  }

  // Ranked layout: the ids and weights that go with a row; here[j]: the local expert of k = j.
  __device__ __noinline__ void write_routing(const Token& of, const std::int32_t* here,
                                             std::int32_t place) const {
    const auto* weights =
        lane.template own<const float>(lane.at.routing_weights(of.source)) + of.number * topk;
    for (std::int32_t j = 0; j < topk; ++j) {
      *reinterpret_cast<std::int32_t*>(a.out.ids.at(place, j)) = here[j];
      *reinterpret_cast<float*>(a.out.weights.at(place, j)) = here[j] < 0 ? 0.0F : weights[j];
    }
  }

  // All threads: places the tokens [begin, end), at most a batch, and moves their rows.
  __device__ std::uint64_t move(Batch& batch, Range these, BulkRows& bulk) const {
    __shared__ std::int32_t listed, list_begin;
    __shared__ const std::byte* rows_at[kBatch];
    const auto tid = static_cast<std::int32_t>(threadIdx.x);
    const std::int32_t n = these.size() * topk;
    const auto token_of = [&](std::int32_t i) { return token(these.begin + divider.quotient(i)); };
    // Where each token's row lies; tokens that are not here are not read.
    const auto from = [&](std::int32_t row) { return rows_at[row]; };
    const auto scales_from = [&](std::int32_t row) -> const std::byte* {
      return rows_at[row] == nullptr ? nullptr : rows_at[row] + lane.shape().scale_offset();
    };
    // Whether no earlier k of the token is here.
    const auto is_first = [&](std::int32_t i) {
#pragma unroll 1
      for (std::int32_t j = i - divider.remainder(i); j < i; ++j) {
        if (batch.id[j] >= 0) return false;
      }
      return true;
    };
    if (tid == 0) listed = 0;
#pragma unroll 1
    for (std::int32_t i = tid; i < n; i += kThreads) {
      const Token of = token_of(i);
      batch.id[i] = look_up(ids_of(of.source), of.number * topk + divider.remainder(i));
    }
    __syncthreads();
    for (std::int32_t row = tid; row < these.size(); row += kThreads) {
      bool here = false;
#pragma unroll 1
      for (std::int32_t k = 0; k < topk; ++k) here = here || batch.id[row * topk + k] >= 0;
      const Token of = token(these.begin + row);
      rows_at[row] = here ? lane.heap + lane.at.slot(of.source, of.number) : nullptr;
    }
    for (std::int32_t i = tid; ranked && i < n; i += kThreads)
      batch.key[i] = batch.id[i] >= 0 && is_first(i) ? row_key() : -1;
    __syncthreads();
    const bool begun = bulk.begin(these.size(), from, scales_from);  // meanwhile
    if (tid >= kThreads - 32) number(ranked ? batch.key : batch.id, n, tables.cursor, batch.number);
    __syncthreads();
    std::uint64_t rows = 0;
#pragma unroll 1
    for (std::int32_t i = tid; i < n; i += kThreads) {
      const Token of = token_of(i);
      const std::int32_t k = divider.remainder(i), expert = batch.id[i];
      const std::int32_t place = batch.number[i] < a.out.capacity ? batch.number[i] : -1;
      lane.template own<std::int32_t>(lane.at.places(of.source))[of.number * topk + k] = place;
      batch.to[i] = batch.scales_to[i] = nullptr;
      // What combine answers: rows, or (partial sums) tokens that are here, with or without a row.
      const bool answers = a.partial_sums ? expert >= 0 && is_first(i) : place >= 0;
      batch.key[i] = answers ? add_one(&listed) : -1;
      if (place < 0) continue;
      ++rows;
      batch.to[i] = a.out.x.at(expert, place);
      if (a.out.scale_columns > 0) batch.scales_to[i] = a.out.scales.at(expert, place);
      if (ranked) write_routing(of, batch.id + i - k, place);
    }
    __syncthreads();
    if (tid == kThreads - 1) list_begin = atomicAdd(&lane.state().received, listed);  // needed only below
    move_rows<2>(bulk, begun, a.width, these.size(), topk, {batch.to, lane.shape().row_bytes}, from, a.scales,
                 batch.scales_to, scales_from);
    __syncthreads();
#pragma unroll 1
    for (std::int32_t i = tid; i < n; i += kThreads) {
      if (batch.key[i] < 0) continue;
      const Token of = token_of(i);
      lane.template own<std::int32_t>(lane.at.received())[list_begin + batch.key[i]] =
          (of.source * lane.shape().share + of.number) * topk + divider.remainder(i);
    }
    __syncthreads();
    return rows;
  }
};

}  // namespace moelane::gpu
