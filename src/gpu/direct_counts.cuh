#pragma once

#include "gpu/counts_out.cuh"
#include "gpu/kernels.cuh"
#include "gpu/routing.cuh"
#include "gpu/tables.cuh"
#include "protocol/dispatch_direct.hpp"

// What the ranks of a direct dispatch tell each other: their counts before they write rows, and that they
// have written them.
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
struct DirectCounts {
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
  __device__ __noinline__ void add_all_firsts(bool write_out) const {
    const PlacementView& placement = lane.placement;
#pragma unroll 1
    for (int rank = static_cast<int>(threadIdx.x / 32); rank < lane.shape().ranks; rank += kThreads / 32) {
      add_firsts(
          tables, Range{placement.first[rank], placement.first[rank + 1]}, a.out.alignment,
          [&](std::int32_t i) { return placement.by_rank[i]; },
          write_out && rank == lane.rank() ? a.out.expert_offsets : nullptr);
    }
  }
  // All threads of one block: the caller's counts, each by the thread of its expert. Whether all rows find
  // room, as far as this thread knows.
  __device__ bool write_counts() const {
    const int me = lane.rank();
    return write_counts_out<ranked>(a.out, ranked ? tables.total[experts + me] : 0,
                                    lane.placement.local_experts(me), [&](const auto& write) {
#pragma unroll 1
                                      for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x);
                                           e < experts; e += kThreads) {
                                        if (tables.rank(e) == me) write(tables.local(e), tables.total[e]);
                                      }
                                    });
  }
  __device__ __noinline__ void write_cut() const {
    const std::int32_t* own = lane.placement.by_rank + lane.placement.first[lane.rank()];
    write_cut_counts(block, a.out, ranked ? tables.total[experts + lane.rank()] : 0,
                     [&](std::int32_t local) { return tables.total[own[local]]; });
  }
};

}  // namespace moelane::gpu
