#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/job.cuh"
#include "protocol/views.hpp"

// Rows by the bulk copy engine (sm_90 and later): a warp has a row brought to a slot of shared memory, and
// sent from there to every place. The engine needs no threads meanwhile, so that a row can be on its way
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
#if __CUDA_ARCH__ >= 900
    __shared__ std::uint64_t full[kMostSlots];
    if (!mine()) return;
    full_ = address(&full[warp()]);
    slot_ = address(static_cast<std::byte*>(shared) + bulk.at) +
            static_cast<std::uint32_t>(warp() * bulk.slot_bytes());
    if (lane() == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full_) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
#else
    (void)shared;
#endif
  }
  __device__ bool any() const { return bulk_.slots > 0; }
  // Whether this warp has a slot; the number of its first row is the warp's.
  __device__ bool mine() const { return warp() < bulk_.slots; }
  __device__ static std::int32_t warp() { return static_cast<std::int32_t>(threadIdx.x / 32); }

  // By the warp: a row is on its way.
  __device__ void load([[maybe_unused]] const std::byte* row,
                       [[maybe_unused]] const std::byte* scales) const {
#if __CUDA_ARCH__ >= 900
    if (lane() != 0) return;
    asm volatile("fence.proxy.async;" ::: "memory");  // what others have written before is read
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full_),
                 "r"(bulk_.slot_bytes())
                 : "memory");
    fetch(slot_, row, bulk_.row_bytes);
    if (bulk_.scale_bytes > 0)
      fetch(slot_ + static_cast<std::uint32_t>(bulk_.row_bytes), scales, bulk_.scale_bytes);
#endif
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
#if __CUDA_ARCH__ >= 900
    await();
#endif
  }

  // For the whole block: sends rows [0, rows) to the places to[row * width ...] and scales_to[...], where
  // not null. from(row), scales_from(row): where it is read; null: nowhere. `begun`: the warp has loaded its
  // first. All is written when this returns, as far as the thread knows that sent it.
  template <class From, class ScalesFrom>
  __device__ void move([[maybe_unused]] std::int32_t rows, [[maybe_unused]] std::int32_t width,
                       [[maybe_unused]] std::byte* const* to, [[maybe_unused]] std::byte* const* scales_to,
                       [[maybe_unused]] const From& from, [[maybe_unused]] const ScalesFrom& scales_from,
                       [[maybe_unused]] bool begun) {
#if __CUDA_ARCH__ >= 900
    if (!mine()) return;
#pragma unroll 1
    for (std::int32_t row = warp(); row < rows; row += bulk_.slots) {
      const std::byte* const source = from(row);
      if (source == nullptr) continue;
      if (!begun) load(source, scales_from(row));
      begun = false;
      await();
#pragma unroll 1
      for (std::int32_t k = row * width + lane(); k < (row + 1) * width; k += 32) {
        if (to[k] == nullptr) continue;
        store(to[k], slot_, bulk_.row_bytes);
        if (bulk_.scale_bytes > 0)
          store(scales_to[k], slot_ + static_cast<std::uint32_t>(bulk_.row_bytes), bulk_.scale_bytes);
      }
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      __syncwarp();
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
  }

 private:
  __device__ static std::int32_t lane() { return static_cast<std::int32_t>(threadIdx.x % 32); }
#if __CUDA_ARCH__ >= 900
  __device__ static std::uint32_t address(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }
  __device__ void fetch(std::uint32_t to, const std::byte* from, std::int32_t bytes) const {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(full_)
        : "memory");
  }
  __device__ static void store(std::byte* to, std::uint32_t from, std::int32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
  }
  // By the warp: its row is here.
  __device__ void await() {
    std::uint32_t come = 0;
    while (come == 0) {
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
          : "=r"(come)
          : "r"(full_), "r"(parity_)
          : "memory");
    }
    parity_ ^= 1;
  }
  std::uint32_t full_ = 0, slot_ = 0, parity_ = 0;
#endif
  const Bulk& bulk_;
};

}  // namespace moelane::gpu
