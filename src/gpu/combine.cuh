#pragma once

#include "gpu/combine_terms.cuh"
#include "gpu/launch.cuh"
#include "gpu/shared_memory.hpp"

// Combine, where the tokens are: waits for every rank's signal and sums the answers, which lie with their
// experts (direct way, whose first act is to say that the own expert rows are ready) or in the own slots (put
// way). Work is shared out by pieces of rows, so that the blocks share even a single token.
namespace moelane::gpu {

// What a block sums: pieces of tokens' rows, numbered through. The terms of so many tokens as the table holds
// are found at a time.
struct Pieces {
  Range own;
  std::int32_t chunks;                  // pieces of a token
  std::int32_t most;                    // tokens at a time
  std::int32_t first_token, end_token;  // that the own pieces are of
  __device__ Pieces(std::int32_t tokens, std::int32_t of_a_token, std::int32_t at_a_time)
      : own(slice_of(tokens * of_a_token, gridDim.x, blockIdx.x)),
        chunks(of_a_token),
        most(at_a_time),
        first_token(own.begin / chunks),
        end_token(own.size() <= 0 ? first_token : (own.end - 1) / chunks + 1) {}
  // How many tokens come next, from `first`.
  __device__ std::int32_t batch(std::int32_t first) const {
    return end_token - first < most ? end_token - first : most;
  }
};

// All threads: the terms of a batch. The last threads first: the first ones wait for the signals meanwhile.
template <DeviceTransport T>
__device__ void find_terms(const Combine<T>& combine, TermTable& table, const std::int32_t* ids,
                           const Pieces& pieces, std::int32_t first, std::int32_t topk) {
#pragma unroll 1
  for (std::int32_t i = kSumThreads - 1 - static_cast<std::int32_t>(threadIdx.x);
       i < pieces.batch(first) * topk; i += kSumThreads) {
    table.term[i] = combine.term(ids, first * topk + i);
  }
}

// All threads: brings the first batch's rows near, if there is one piece for a warp at most. In most cases
// they are ready long before the signals have come; what a peer still writes is written there too.
template <DType in, int n>
__device__ void prefetch_terms(const TermTable& table, const Pieces& pieces, std::int32_t topk) {
  constexpr int kPieceBytes = 32 * n * sizeof(typename Element<in>::Type), kLine = 128;
  if constexpr (kPieceBytes >= kLine) {
    if (pieces.own.size() > kSumThreads / 32) return;
    __syncthreads();
    constexpr int kLines = kPieceBytes / kLine;
    const auto tid = static_cast<std::int32_t>(threadIdx.x);
    const std::int32_t unit = pieces.own.begin + tid / 32, token = unit / pieces.chunks - pieces.first_token;
    const auto piece =
        static_cast<std::int64_t>(unit - (token + pieces.first_token) * pieces.chunks) * kPieceBytes;
    for (std::int32_t i = tid % 32; unit < pieces.own.end && token < pieces.most && i < topk * kLines;
         i += 32) {
      const std::byte* row = table.term[token * topk + i / kLines].row;
      if (row != nullptr) ptx::prefetch(row + piece + i % kLines * kLine);
    }
  }
}

// All threads: sums the own pieces of the batch that begins with token `first`, a warp each at a time.
template <DType in, int n>
__device__ void sum_pieces(const TermTable& table, const Pieces& pieces, std::int32_t first,
                           std::int32_t topk, const CombineOutput& out) {
  const std::int32_t from = first * pieces.chunks, end = from + pieces.batch(first) * pieces.chunks;
  const std::int32_t last = pieces.own.end < end ? pieces.own.end : end;
#pragma unroll 1
  for (std::int32_t unit =
           (pieces.own.begin > from ? pieces.own.begin : from) + static_cast<std::int32_t>(threadIdx.x) / 32;
       unit < last; unit += kSumThreads / 32) {
    const std::int32_t token = unit / pieces.chunks;
    std::byte* const to = out.out.at(token);
    sum_chunk<in, n>(table.term + (token - first) * topk, topk, out.hidden, unit - token * pieces.chunks,
                     out.out_type, out.accumulate, &to, 1);
  }
}

template <DeviceTransport T, DType in, int n>
__global__ void __launch_bounds__(kSumThreads, 1) combine_kernel(const __grid_constant__ CombineArgs<T> a) {
  extern __shared__ std::int32_t shared[];
  __shared__ TermTable table;
  __shared__ std::int32_t far_answers[kCountsFarRows<T> ? T::kMaxRanks : 1];
  const Lane<T>& lane = a.context.lane;
  const Shape& shape = lane.shape();
  const Block<T> block(a.context);
  const auto tid = static_cast<std::int32_t>(threadIdx.x);
  const bool dead = block.dead();
  if (a.direct && blockIdx.x == 0 && tid < shape.ranks && !dead) {  // before all else: the peers wait for it
    lane.transport.fence();
    block.signal_one(tid, lane.at.signal(Signal::combine, shape.rank),
                     pack(block.epoch, combine_payload(WireWay::direct, false, a.print)));
  }
  const Combine<T> combine{a, lane, block};
  fetch_arguments(a);
  // The thread that reports what was dropped has read early what there may be to report.
  const bool reports = blockIdx.x == gridDim.x - 1 && tid == kSumThreads - 1;
  const std::uint32_t first_dropped = reports ? a.context.shared_state->first_dropped : kNone;
  const std::int32_t topk = shape.topk, tokens = a.tokens >= 0 ? a.tokens : lane.state().tokens;
  const auto* ids = lane.template own<const std::int32_t>(lane.at.own_ids());
  const Pieces pieces(tokens, chunks_of<n>(a.out.hidden), a.context.topk_divider.quotient(kTerms));
  // Where the answers will be is known before they are there.
  find_terms(combine, table, ids, pieces, pieces.first_token, topk);
  if (a.direct) prefetch_terms<in, n>(table, pieces, topk);

  block.wait_begins();
  bool come = true, dropped = false;
  if (tid < shape.ranks && !dead) come = combine.await_source(tid, dropped);
  if (any_in_block(!come || dead)) return;
  dropped = any_in_block(dropped);
  if constexpr (kCountsFarRows<T>) {
    if (shape.staged) {
      combine.count_far_answers(ids, tokens, far_answers);
      if (any_in_block(tid < shape.ranks && !combine.await_far_answers(tid, far_answers[tid]))) return;
    }
  }
  block.wait_ends();
  auto* const cursor = a.context.scratch == nullptr
                           ? shared
                           : a.context.scratch + static_cast<std::int64_t>(blockIdx.x) * counter_words(shape);
  if (dropped) combine.count_before(ids, pieces.first_token * topk, cursor);
#pragma unroll 1
  for (std::int32_t first = pieces.first_token; pieces.batch(first) > 0; first += pieces.most) {
    if (first != pieces.first_token) {
      __syncthreads();
      find_terms(combine, table, ids, pieces, first, topk);
      __syncthreads();
    }
    if (dropped) combine.take_out(table, ids, first * topk, pieces.batch(first) * topk, cursor);
    sum_pieces<in, n>(table, pieces, first, topk, a.out);
  }
  if (reports) combine.report_dropped(first_dropped, dropped);
  if constexpr (kCountsFarRows<T>) {
    if (shape.staged && block.last() && tid < shape.ranks)
      combine.expected_answers(tid) += static_cast<std::uint64_t>(far_answers[tid]);
  }
  block.end(0);
}

template <DeviceTransport T>
void launch_combine(const CombineArgs<T>& args, const Launch& launch) {
  with_type(args.out.in_type, args.aligned,
            [&]<DType in, int n>() { run<combine_kernel<T, in, n>>(args, launch, kSumThreads); });
}

}  // namespace moelane::gpu
