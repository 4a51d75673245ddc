#pragma once

#include "gpu/direct_counts.cuh"

// Which rows a direct dispatch writes where.
namespace moelane::gpu {

template <DeviceTransport T, bool ranked, bool in_shared>
struct Direct : DirectCounts<T, ranked, in_shared> {
  using Counts = DirectCounts<T, ranked, in_shared>;
  using Counts::a, Counts::lane, Counts::tables, Counts::divider, Counts::topk, Counts::experts;

  // The key by which an entry is numbered: its expert; ranked: its rank, where no earlier k of the token
  // names that.
  __device__ std::int32_t key_of_entry(std::int32_t entry) const {
    const std::int32_t token = divider.quotient(entry), k = entry - token * topk;
    const std::int32_t expert = id_of(a.in, experts, token, k);
    if (!ranked || expert < 0) return expert;
    const std::int32_t rank = tables.rank(expert);
    for (std::int32_t j = 0; j < k; ++j) {
      const std::int32_t other = id_of(a.in, experts, token, j);
      if (other >= 0 && tables.rank(other) == rank) return -1;
    }
    return experts + rank;
  }
  // All threads: counts entries that lie in memory.
  __device__ __noinline__ void count_far(Range entries, std::int32_t* counters) const {
    count(entries, counters, [&](std::int32_t entry) { return key_of_entry(entry); });
  }
  // Ranked: counts of experts are the receiver's numbers of pairs.
  __device__ __noinline__ void count_pairs(Range entries) const {
    count(entries, tables.total,
          [&](std::int32_t i) { return id_of(a.in, experts, divider.quotient(i), divider.remainder(i)); });
  }

  // All threads: reads the ids of these entries, of a batch that begins with entry `first`, some token's k =
  // 0. Whether this thread has seen a bad one.
  __device__ __noinline__ bool read(Batch& batch, Range entries, std::int32_t first) const {
    bool bad = false;
#pragma unroll 1
    for (std::int32_t e = entries.begin + static_cast<std::int32_t>(threadIdx.x); e < entries.end;
         e += kThreads) {
      batch.id[e - first] =
          keep(a.context, e, entry_of(a.in, divider.quotient(e), divider.remainder(e)), bad);
    }
    return bad;
  }

  // All threads: rows will go near the first row of their expert, so its address is looked up meanwhile.
  __device__ void prefetch_places(const Batch& batch, Range entries) const {
    const std::int32_t i = static_cast<std::int32_t>(threadIdx.x);
    if (i >= entries.size()) return;
    const std::int32_t id = batch.id[divider.remainder(entries.begin) + i];
    if (id < 0) return;
    const std::ptrdiff_t there = lane.transport.peer_pointer(tables.rank(id)) - lane.heap;
    ptx::prefetch(a.out.x.at(tables.local(id), 0) + there);
    if (a.out.scale_columns > 0) ptx::prefetch(a.out.scales.at(tables.local(id), 0) + there);
  }

  // Ranked layout: the ids and weights that go with a row.
  __device__ __noinline__ void write_routing(std::int32_t token, std::int32_t rank,
                                             std::int32_t place) const {
    const std::ptrdiff_t there = lane.transport.peer_pointer(rank) - lane.heap;
    for (std::int32_t j = 0; j < topk; ++j) {
      const std::int32_t id = id_of(a.in, experts, token, j);
      const bool here = id >= 0 && tables.rank(id) == rank;
      *reinterpret_cast<std::int32_t*>(a.out.ids.at(place, j) + there) = here ? tables.local(id) : -1;
      *reinterpret_cast<float*>(a.out.weights.at(place, j) + there) =
          here ? *reinterpret_cast<const float*>(a.in.weights.at(token, j)) : 0.0F;
    }
  }

  // All threads, after a barrier: numbers these entries and (own share) writes their rows. `begun`: bulk has
  // their first.
  __device__ std::uint64_t move(Batch& batch, Range entries, bool mine, BulkRows& bulk, bool begun) const {
    const std::int32_t first_token = divider.quotient(entries.begin), first = first_token * topk;
    const std::int32_t skip = entries.begin - first,
                       tokens = divider.quotient(entries.end - first + topk - 1);
    const auto tid = static_cast<std::int32_t>(threadIdx.x);
    if (ranked) {
      for (std::int32_t e = entries.begin + tid; e < entries.end; e += kThreads)
        batch.key[e - first] = key_of_entry(e);
      __syncthreads();
    }
    if (tid < 32)
      number((ranked ? batch.key : batch.id) + skip, entries.size(), tables.cursor, batch.number + skip);
    __syncthreads();
    std::uint64_t rows = 0;
#pragma unroll 1
    for (std::int32_t i = tid; i < tokens * topk; i += kThreads) {
      batch.to[i] = batch.scales_to[i] = nullptr;
      if (i < skip || first + i >= entries.end) continue;
      const std::int32_t number = batch.number[i], place = number < a.out.capacity ? number : -1;
      lane.template own<std::int32_t>(lane.at.own_places())[first + i] = place;
      if (number != place)
        atomicMin(&a.context.shared_state->first_dropped, static_cast<std::uint32_t>(first + i));
      if (place < 0 || !mine) continue;
      ++rows;
      const std::int32_t rank = tables.rank(batch.id[i]), local = tables.local(batch.id[i]);
      const std::ptrdiff_t there = lane.transport.peer_pointer(rank) - lane.heap;
      batch.to[i] = a.out.x.at(local, place) + there;
      if (a.out.scale_columns > 0) batch.scales_to[i] = a.out.scales.at(local, place) + there;
      if (ranked) write_routing(first_token + divider.quotient(i), rank, place);
    }
    __syncthreads();
    if (mine) {
      move_rows<2>(
          bulk, begun, a.width, tokens, topk, {batch.to, lane.shape().row_bytes},
          [&](std::int32_t row) { return a.in.x.at(first_token + row); }, a.scales, batch.scales_to,
          [&](std::int32_t row) { return a.in.scales.at(first_token + row); });
    }
    return rows;
  }
};

}  // namespace moelane::gpu
