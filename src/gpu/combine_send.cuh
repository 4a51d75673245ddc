#pragma once

#include "gpu/answers.cuh"
#include "gpu/launch.cuh"

// Combine, put way, where the experts are: copies every listed answer (or, with partial sums, one sum for
// each token that is here) into the slots of all ranks of the token's group, then signals. Never waits. What
// is for far ranks is staged in the own heap and sent from there.
namespace moelane::gpu {

inline constexpr int kSendTerms = 512;

// All threads, when all answers of the block are written.
template <DeviceTransport T>
__device__ void finish(const Block<T>& block, const AnswerArgs<T>& a, std::int32_t rows) {
  const Lane<T>& lane = a.context.lane;
  const Shape& shape = lane.shape();
  const std::uint64_t word = pack(block.epoch, combine_payload(WireWay::put, false, a.print));
  const bool dropped = lane.state().dropped != 0;
  const bool last =
      dropped ? block.last() : block.last_and_signal(lane.at.signal(Signal::combine, shape.rank), word);
  if (last && dropped) signal_with_counts(block, a);
  if (last && threadIdx.x == 0) lane.state().received = 0;
  block.end(threadIdx.x == 0
                ? static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(shape.answer_bytes)
                : 0);
}

template <DeviceTransport T>
__global__ void __launch_bounds__(kSendThreads, 1) answer_kernel(const __grid_constant__ AnswerArgs<T> a) {
  __shared__ std::byte* to[kBatch];
  __shared__ const std::byte* from[kBatch];
  const Lane<T>& lane = a.context.lane;
  const Block<T> block(a.context);
  if (block.dead()) return;
  const Answering<T> answering{a, lane};
  const std::int32_t tp = lane.shape().tp, most = answering.rows_at_a_time(kBatch / tp);
  const Range own = answering.own_entries();
  for (std::int32_t first = own.begin; first < own.end; first += most) {
    const std::int32_t n = own.end - first < most ? own.end - first : most;
    answering.find_slots(first, n, to);
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n; i += kSendThreads) {
      const typename Answering<T>::Entry e = answering.entry(first + i);
      from[i] = a.rows.at(lane.placement.local_of[e.ids[e.k]], answering.place(e, e.k));
    }
    __syncthreads();
    copy_rows<7>(a.width, n, tp, {to, lane.shape().answer_bytes},
                 [&](std::int32_t row) { return from[row]; });
    answering.send_far(first, n);
  }
  finish(block, a, (own.end - own.begin) * tp);
}

template <DeviceTransport T, DType in, int n>
__global__ void __launch_bounds__(kSendThreads, 1)
    partial_sum_kernel(const __grid_constant__ AnswerArgs<T> a) {
  __shared__ std::byte* to[kBatch];
  __shared__ Term terms[kSendTerms];
  const Lane<T>& lane = a.context.lane;
  const Block<T> block(a.context);
  if (block.dead()) return;
  const Answering<T> answering{a, lane};
  const std::int32_t tp = lane.shape().tp, topk = lane.shape().topk;
  const std::int32_t most =
      answering.rows_at_a_time(kSendTerms / topk < kBatch / tp ? kSendTerms / topk : kBatch / tp);
  const std::int32_t chunks = chunks_of<n>(a.hidden);
  const Range own = answering.own_entries();
  for (std::int32_t first = own.begin; first < own.end; first += most) {
    const std::int32_t rows = own.end - first < most ? own.end - first : most;
    answering.find_slots(first, rows, to);
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < rows * topk; i += kSendThreads) {
      terms[i] = answering.term(answering.entry(first + i / topk), i % topk);
    }
    __syncthreads();
    for (std::int32_t unit = static_cast<std::int32_t>(threadIdx.x / 32); unit < rows * chunks;
         unit += kSendThreads / 32) {
      const std::int32_t row = unit / chunks;
      sum_chunk<in, n>(terms + row * topk, topk, a.hidden, unit % chunks, DType::bf16, false, to + row * tp,
                       tp);
    }
    answering.send_far(first, rows);
  }
  finish(block, a, (own.end - own.begin) * tp);
}

template <DeviceTransport T>
void launch_combine_send(const AnswerArgs<T>& args, const Launch& launch) {
  if (!args.partial_sums) return run<answer_kernel<T>>(args, launch, kSendThreads);
  with_type(args.type, args.width == Width::sixteen,
            [&]<DType in, int n>() { run<partial_sum_kernel<T, in, n>>(args, launch, kSendThreads); });
}

}  // namespace moelane::gpu
