#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/ptx.cuh"
#include "gpu/block.cuh"

// Rows by the bulk copy engine (sm_90 and later): a warp has a row brought to a slot of shared memory, and
// sent from there to every address. The engine needs no threads meanwhile, so that a row can be on its way
// before it is known where it goes, and has as many bytes in flight as there is shared memory.
namespace moelane::gpu {

// What the host has found: `slots` rows lie in shared memory at a time, each with its scales behind it. No
// slots: rows go word by word.
struct Bulk {
  std::int32_t slots = 0;
  std::int32_t row_bytes = 0, scale_bytes = 0;  // multiples of 16; scales that do not go along count as 0
  std::int32_t at = 0;                          // bytes of shared memory before the slots
  __host__ __device__ std::int32_t slot_bytes() const { return row_bytes + scale_bytes; }
};
inline constexpr int kMostSlots = kThreads / 32;  // one for each warp
inline constexpr std::int32_t kBulkAlignment = 128;

class BulkRows {
 public:
  // For the whole block, which is at liberty to go on: each warp prepares its own slot.
  __device__ BulkRows(const Bulk& bulk, void* shared) : bulk_(bulk) {
    if constexpr (ptx::kBulkCopies) {
      __shared__ std::uint64_t full[kMostSlots];
      if (!mine()) return;
      full_ = ptx::shared_address(&full[warp()]);
      slot_ = ptx::shared_address(static_cast<std::byte*>(shared) + bulk.at) +
              static_cast<std::uint32_t>(warp() * bulk.slot_bytes());
      if (lane() == 0) ptx::barrier_init(full_);
      __syncwarp();
    }
  }
  __device__ bool any() const { return bulk_.slots > 0; }
  // Whether this warp has a slot; the number of its first row is the warp's.
  __device__ bool mine() const { return warp() < bulk_.slots; }
  __device__ static std::int32_t warp() { return static_cast<std::int32_t>(threadIdx.x / 32); }

  // By the warp: a row is on its way.
  __device__ void load(const std::byte* row, const std::byte* scales) const {
    if constexpr (ptx::kBulkCopies) {
      if (lane() != 0) return;
      ptx::bulk_fence();  // what others have written before is read
      ptx::barrier_expect(full_, bulk_.slot_bytes());
      ptx::bulk_load(slot_, row, bulk_.row_bytes, full_);
      if (bulk_.scale_bytes > 0)
        ptx::bulk_load(slot_ + static_cast<std::uint32_t>(bulk_.row_bytes), scales, bulk_.scale_bytes, full_);
    }
  }

  // For the whole block: each warp loads the first row that it will move(). Whether it has one.
  template <class From, class ScalesFrom>
  __device__ bool begin(std::int32_t rows, const From& from, const ScalesFrom& scales_from) const {
    if (!mine()) return false;
#pragma unroll 1
    for (std::int32_t row = warp(); row < rows; row += bulk_.slots) {
      const std::byte* const source = from(row);
      if (source == nullptr) continue;
      load(source, scales_from(row));
      return true;
    }
    return false;
  }

  // By the warp, in a kernel that ends before it moves what is on its way.
  __device__ void drop() {
    if constexpr (ptx::kBulkCopies) await();
  }

  // For the whole block: sends rows [0, rows) to the addresses to[row * fanout ...] and scales_to[...], where
  // not null. from(row), scales_from(row): where it is read; null: nowhere. `begun`: the warp has loaded its
  // first. All is written when this returns, as far as the thread knows that sent it.
  template <class From, class ScalesFrom>
  __device__ void move(std::int32_t rows, std::int32_t fanout, std::byte* const* to,
                       std::byte* const* scales_to, const From& from, const ScalesFrom& scales_from,
                       bool begun) {
    if constexpr (ptx::kBulkCopies) {
      if (!mine()) return;
#pragma unroll 1
      for (std::int32_t row = warp(); row < rows; row += bulk_.slots) {
        const std::byte* const source = from(row);
        if (source == nullptr) continue;
        if (!begun) load(source, scales_from(row));
        begun = false;
        await();
#pragma unroll 1
        for (std::int32_t k = row * fanout + lane(); k < (row + 1) * fanout; k += 32) {
          if (to[k] == nullptr) continue;
          ptx::bulk_store(to[k], slot_, bulk_.row_bytes);
          if (bulk_.scale_bytes > 0) {
            ptx::bulk_store(scales_to[k], slot_ + static_cast<std::uint32_t>(bulk_.row_bytes),
                            bulk_.scale_bytes);
          }
        }
        ptx::bulk_close();
        ptx::bulk_await_read();
        __syncwarp();
      }
      ptx::bulk_await_written();
    }
  }

 private:
  __device__ static std::int32_t lane() { return static_cast<std::int32_t>(threadIdx.x % 32); }
  // By the warp: its row is here.
  __device__ void await() {
    while (!ptx::barrier_complete(full_, parity_)) {
    }
    parity_ ^= 1;
  }

  const Bulk& bulk_;
  ptx::SharedAddress full_{}, slot_{};
  std::uint32_t parity_ = 0;
};

}  // namespace moelane::gpu
