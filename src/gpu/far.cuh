#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/context.cuh"

// Peers whose heaps kernels do not address. What goes to them is put together in the own heap and sent from
// there, by warps side by side. Where a transport has no such peers, none of this is compiled.
namespace moelane::gpu {

template <DeviceTransport T>
inline constexpr bool kHasFar = T::kReach != Reach::all;
// Far rows are counted by the receiver, as the sender's signal does not say that they have come.
template <DeviceTransport T>
inline constexpr bool kCountsFarRows = kHasFar<T> && !T::kStrong;

template <DeviceTransport T>
__device__ bool is_far(const Lane<T>& lane, int peer) {
  if constexpr (kHasFar<T>) {
    return lane.transport.peer_pointer(peer) == nullptr;
  } else {
    return false;
  }
}

// By a warp: one row from the own heap to `offset` of a far peer's. `counter`: how the receiver counts it.
template <DeviceTransport T>
__device__ void send_far_row(const Lane<T>& lane, Warp warp, int peer, std::uint64_t offset,
                             const std::byte* row, std::int64_t bytes, Signal counter) {
  if constexpr (T::kStrong) {
    lane.transport.put(warp, peer, offset, row, static_cast<std::size_t>(bytes));
  } else {
    lane.transport.put_signal(warp, peer, offset, row, static_cast<std::size_t>(bytes),
                              lane.at.signal(counter, lane.rank()), 1, SignalOp::add);
  }
}

// Put way: the word, among a source's counts, of the rows for expert number `local` of a rank, or, behind its
// experts, for the rank in all. What goes to one rank lies side by side.
template <DeviceTransport T>
__device__ std::int32_t far_count_word(const Lane<T>& lane, int rank, std::int32_t local) {
  return lane.placement.first[rank] + rank + local;
}

// Where answers are staged, row by row, a part for each block: in the lane's answer stage and the dispatch
// slots behind it. Their rows have been taken out, and no peer fills them again before it has this call's
// signal, by when all that was staged has been sent.
template <DeviceTransport T>
class AnswerStage {
 public:
  __device__ explicit AnswerStage(const Lane<T>& lane)
      : first_(lane.heap + lane.at.answer_stage(0)), stride_(lane.at.answer(0, 1) - lane.at.answer(0, 0)) {
    const std::uint64_t bytes = lane.at.slot(lane.shape().ranks, 0) - lane.at.answer_stage(0);
    const std::uint64_t all = stride_ == 0 ? kMostRows * gridDim.x : bytes / stride_;
    units_ = all < gridDim.x ? static_cast<std::uint32_t>(all) : gridDim.x;
    rows_ = static_cast<std::int32_t>(all / units_ < kMostRows ? all / units_ : kMostRows);
  }
  // The call's first blocks, so many, have room; each for so many rows.
  __device__ std::uint32_t units() const { return units_; }
  __device__ std::int32_t rows() const { return rows_; }
  __device__ std::byte* row(std::int32_t i) const {
    return first_ + (static_cast<std::uint64_t>(blockIdx.x) * static_cast<std::uint64_t>(rows_) +
                     static_cast<std::uint64_t>(i)) *
                        stride_;
  }

 private:
  static constexpr std::uint64_t kMostRows = 1024;

  std::byte* first_;
  std::uint64_t stride_;
  std::uint32_t units_;
  std::int32_t rows_;
};

}  // namespace moelane::gpu
