#pragma once

#include <cstdint>
#include <vector>

#include "cuda/arrays.hpp"
#include "gpu/context.cuh"
#include "protocol/views.hpp"

namespace moelane::gpu {

// A placement's tables in the card's memory. They stay where they are when the placement changes, so that
// captured graphs find the new one. The caller has synchronised the streams of earlier steps; the card as a
// whole may be busy with other ranks, which may wait for this one.
class CardPlacement {
 public:
  CardPlacement(const PlacementView& placement, int experts, int ranks)
      : experts_(static_cast<std::size_t>(experts)),
        ranks_(static_cast<std::size_t>(ranks)),
        words_(card_array<std::int32_t>(4 * experts_ + ranks_ + 1)) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
    set(placement);
  }
  ~CardPlacement() { cudaStreamDestroy(stream_); }
  CardPlacement(const CardPlacement&) = delete;
  CardPlacement& operator=(const CardPlacement&) = delete;

  void set(const PlacementView& placement) {
    std::vector<std::uint32_t> where(experts_);
    for (std::size_t e = 0; e < experts_; ++e)
      where[e] = where_word(placement.rank_of[e], placement.local_of[e]);
    std::int32_t* const at = words_.get();
    put(at, placement.rank_of, experts_);
    put(at + experts_, placement.local_of, experts_);
    put(at + 2 * experts_, placement.by_rank, experts_);
    put(at + 3 * experts_, where.data(), experts_);
    put(at + 4 * experts_, placement.first, ranks_ + 1);
    check(cudaStreamSynchronize(stream_), "write a placement to a card");
    view_ = {at, at + experts_, at + 4 * experts_, at + 2 * experts_, placement.fingerprint};
  }
  const PlacementView& view() const { return view_; }
  const std::uint32_t* where() const {
    return reinterpret_cast<const std::uint32_t*>(words_.get() + 3 * experts_);
  }

 private:
  void put(std::int32_t* to, const void* from, std::size_t n) {
    check(cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyHostToDevice, stream_),
          "write a placement to a card");
  }

  std::size_t experts_, ranks_;
  CardArray<std::int32_t> words_;
  cudaStream_t stream_ = nullptr;
  PlacementView view_;
};

}  // namespace moelane::gpu
