#pragma once

#include "gpu/counts_out.cuh"
#include "gpu/kernels.cuh"
#include "gpu/routing.cuh"
#include "gpu/tables.cuh"
#include "protocol/dispatch_direct.hpp"

// What the blocks of a direct dispatch do, in the order of the kernel (dispatch_direct.cu).
namespace moelane::gpu {

// What came of waiting for the counts of all.
enum class CountsResult {
  complete,
  mismatched,  // some source's do not fit; check_source() says how
  missing,     // some word did not come; this has been posted
};

// What a rank says beside its counts.
struct Source {
  std::int32_t tokens, units;
};

template <DeviceTransport T, bool ranked, bool in_shared>
struct Direct {
  const DirectArgs<T>& a;
  const Lane<T>& lane;
  const Block<T>& block;
  const Tables<T, in_shared>& tables;
  TopkDivider divider;
  static constexpr int kTries = 64;  // looks at words before the wait that can fail
  std::int32_t topk, experts, keys;  // keys: experts, and (ranked layout) ranks behind them

  __device__ std::uint64_t extra(CountWord which, std::int32_t tokens) const {
    const std::uint64_t value = which == CountWord::tokens           ? static_cast<std::uint64_t>(tokens)
                                : which == CountWord::units          ? gridDim.x
                                : which <= CountWord::placement_high ? lane.placement.fingerprint
                                                                     : a.print;
    const bool high = which == CountWord::placement_high || which == CountWord::output_high;
    return high ? value >> kPayloadBits : value;
  }
  __device__ std::uint64_t word_at(int source, std::int32_t i) const {
    return lane.at.counts(source) + static_cast<std::uint64_t>(i) * 8;
  }

  // Block `number` of `publishers`: the rows of this rank's share, for each expert and rank, to its part of
  // the peers; each thread then clears what it has read.
  __device__ void publish(std::int32_t tokens, int number, int publishers) const {
    const Shape& shape = lane.shape();
    const std::int32_t plain = shape.experts + shape.ranks;
#pragma unroll 1
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < plain + kCountWords; i += kThreads) {
      std::uint64_t value = 0;
      if (i < keys) {
        value = static_cast<std::uint64_t>(tables.total[i]);
        tables.total[i] = 0;
      }
      if (i >= plain) value = extra(static_cast<CountWord>(i - plain), tokens);
      const std::uint64_t word = pack(block.epoch + 1, value), at = word_at(shape.rank, i);
#pragma unroll 1
      for (int peer = number; peer < shape.ranks; peer += publishers)
        lane.transport.relaxed_signal(peer, at, word);
    }
    const int peer = number + static_cast<int>(threadIdx.x) * publishers;
    if (peer < shape.ranks) {  // for peers whose call takes the put way
      lane.transport.relaxed_signal(peer, lane.at.signal(Signal::counts, shape.rank),
                                    pack(block.epoch + 1, 0));
    }
  }

  __device__ std::uint64_t look(int source, std::int32_t i) const {
    return Word(*lane.template own<std::uint64_t>(word_at(source, i))).load(cuda::memory_order_relaxed);
  }
  // Every thread: adds up the rows of all ranks for each key, and of those before the own group. The loads of
  // a thread are on their way together, and again until all its words have come.
  __device__ CountsResult gather(Source* sources) const {
    constexpr int kTogether = 3;
    const Shape& shape = lane.shape();
    const std::int32_t plain = shape.experts + shape.ranks, each = keys + kCountWords,
                       all = each * shape.ranks;
    const std::uint64_t needed = pack(block.epoch + 1, 0);
    const int group_first = lane.group_first();
    CountsResult found = CountsResult::complete;
#pragma unroll 1
    for (std::int32_t first = static_cast<std::int32_t>(threadIdx.x); first < all;
         first += kTogether * kThreads) {
      std::uint64_t words[kTogether];
      std::int32_t source[kTogether], which[kTogether];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const std::int32_t f = first + u * kThreads;
        source[u] = f / each;
        const std::int32_t i = f - source[u] * each;
        which[u] = i < keys ? i : plain + i - keys;
        words[u] = f < all ? look(source[u], which[u]) : needed;
      }
#pragma unroll 1
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
        if (first + u * kThreads >= all) break;
        if (!reached(words[u], needed, kEpochMask) &&
            !block.wait_for({word_at(source[u], which[u]), needed, kEpochMask, source[u],
                             lane.at.signal(Signal::dispatch, source[u])},
                            Phase::counts, words[u])) {
          return CountsResult::missing;
        }
        const auto value = static_cast<std::int32_t>(payload_of(words[u]));
        if (which[u] >= plain) {
          const auto word = static_cast<CountWord>(which[u] - plain);
          const bool counts_tokens = word == CountWord::tokens;
          if (counts_tokens) sources[source[u]].tokens = value;
          if (word == CountWord::units) {
            sources[source[u]].units = value < kMaxUnits ? value : kMaxUnits;
            continue;
          }
          if (counts_tokens ? value > shape.max_tokens
                            : static_cast<std::uint64_t>(value) != (extra(word, 0) & kPayloadMask)) {
            found = CountsResult::mismatched;
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
  __device__ __noinline__ void check_source(int source) const {
    const Shape& shape = lane.shape();
    const auto get = [&](int of, CountWord which) {
      return payload_of(look(of, shape.experts + shape.ranks + static_cast<int>(which)));
    };
    constexpr std::uint64_t k48 = (std::uint64_t{1} << 48) - 1;
    const std::uint64_t placement =
        get(source, CountWord::placement_low) | get(source, CountWord::placement_high) << kPayloadBits;
    const std::uint64_t output = get(source, CountWord::output_low) | get(source, CountWord::output_high)
                                                                          << kPayloadBits;
    const std::uint64_t tokens = get(source, CountWord::tokens);
    const std::uint64_t groups = get(source / shape.tp * shape.tp, CountWord::tokens);
    const std::uint64_t ours = lane.placement.fingerprint & k48;
    if (placement != ours) {
      block.refuse_peer(Fault::other_placement, Phase::counts, source, placement, ours);
    } else if (output != (a.print & k48)) {
      block.refuse_peer(Fault::other_tensor, Phase::counts, source, output, a.print & k48);
    } else if (tokens != groups || tokens > static_cast<std::uint64_t>(shape.max_tokens)) {
      block.refuse_peer(Fault::other_tokens, Phase::counts, source, tokens, groups);
    }
  }

  // Block 0: waits until every block of every rank has written its rows, a warp for a source and a thread for
  // a block. False when one does not; `bad` when a block of this rank has seen a bad id.
  __device__ bool await_rows(const Source* sources, std::uint64_t needed, bool& bad) const {
    bool come = true;
#pragma unroll 1
    for (int source = static_cast<int>(threadIdx.x / 32); source < lane.shape().ranks;
         source += kThreads / 32) {
#pragma unroll 1
      for (int unit = static_cast<int>(threadIdx.x % 32); unit < sources[source].units && come; unit += 32) {
        const std::uint64_t at = lane.at.written(source, unit);
        std::uint64_t word = 0;
        // Looks that order nothing are quick; one that does follows.
#pragma unroll 1
        for (int tries = 0; tries < kTries && !reached(word, needed, kEpochMask); ++tries)
          word = Word(*lane.template own<std::uint64_t>(at)).load(cuda::memory_order_relaxed);
        come = block.wait_for({at, needed, kEpochMask, source}, Phase::dispatch, word);
        if (source == lane.rank() && unit > 0 && payload_of(word) != 0) bad = true;
      }
    }
    return come;
  }

  // Contiguous layout: where each expert begins in its rank's output. A warp takes a rank.
  __device__ __noinline__ void add_firsts(bool write_out) const {
    const PlacementView& placement = lane.placement;
    const std::int32_t alignment = a.out.alignment;
#pragma unroll 1
    for (int rank = static_cast<int>(threadIdx.x / 32); rank < lane.shape().ranks; rank += kThreads / 32) {
      const bool own = write_out && rank == lane.rank();
      const Range range{placement.first[rank], placement.first[rank + 1]};
      const std::int32_t end = prefix(
          range,
          [&](std::int32_t i) {
            return (tables.total[placement.by_rank[i]] + alignment - 1) / alignment * alignment;
          },
          [&](std::int32_t i, std::int32_t first) {
            tables.cursor[placement.by_rank[i]] += first;
            if (own) a.out.expert_offsets[i - range.begin] = first;
          });
      if (own && threadIdx.x % 32 == 0) a.out.expert_offsets[range.size()] = end;
    }
  }

  // All threads of one block: the caller's counts, each by the thread of its expert. Whether all rows find
  // room, as far as this thread knows; of the contiguous layout the last offset decides.
  __device__ bool write_counts_out() const {
    const int me = lane.rank();
    const bool padded = a.out.layout == Layout::padded;
    std::int32_t most = 0;
    if (threadIdx.x == 0 && ranked) most = *a.out.row_count = tables.total[experts + me];
    if (threadIdx.x == 0 && a.out.layout == Layout::contiguous) {
      most = a.out.expert_offsets[lane.placement.local_experts(me)];
    }
#pragma unroll 1
    for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x); e < experts; e += kThreads) {
      if (tables.rank(e) != me) continue;
      const std::int32_t here = tables.total[e];
      a.out.expert_counts[tables.local(e)] = here;
      if (padded && here > most) most = here;
    }
    return most <= a.out.capacity;
  }
  __device__ __noinline__ void write_cut() const {
    const std::int32_t* own = lane.placement.by_rank + lane.placement.first[lane.rank()];
    write_cut_counts(block, a.out, ranked ? tables.total[experts + lane.rank()] : 0,
                     [&](std::int32_t local) { return tables.total[own[local]]; });
  }

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
