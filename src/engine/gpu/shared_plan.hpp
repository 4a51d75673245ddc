#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "cuda/check.hpp"
#include "gpu/rows.cuh"
#include "gpu/shared_memory.hpp"

namespace moelane::gpu {

// How the kernels of an engine divide a block's shared memory.
class SharedPlan {
 public:
  SharedPlan(int card, const Shape& shape)
      : row_bytes_(shape.row_bytes),
        table_bytes_(static_cast<std::size_t>(table_words(shape)) * sizeof(std::int32_t)) {
    int major = 0, most = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, card), "tell its generation");
    check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, card),
          "tell its shared memory");
    bulk_bytes_ = major >= 9 ? most - kKernelsOwnShared : 0;
  }

  bool tables_fit() const { return table_bytes_ <= kMostTableBytes; }

  // Slots for blocks that move at most `rows` rows each.
  Bulk bulk_of(Width width, const Scales& scales, std::int64_t rows) const {
    Bulk bulk;
    if (width != Width::sixteen || row_bytes_ == 0) return bulk;
    const std::int64_t at = static_cast<std::int64_t>(bytes() + kBulkAlignment - 1) / kBulkAlignment *
                            kBulkAlignment,
                       along = go_along(scales, width) ? std::int64_t{scales.columns} * scales.size : 0,
                       slots = (bulk_bytes_ - at) / (row_bytes_ + along);
    if (slots < 2 || rows == 0) return bulk;  // one would have nothing on its way while it is sent
    const std::int64_t enough = std::max<std::int64_t>(kEnoughBulk / (row_bytes_ + along), 2);
    bulk.slots = static_cast<std::int32_t>(std::min<std::int64_t>({slots, enough, kMostSlots, rows}));
    bulk.row_bytes = static_cast<std::int32_t>(row_bytes_);
    bulk.scale_bytes = static_cast<std::int32_t>(along);
    bulk.at = static_cast<std::int32_t>(at);
    return bulk;
  }

  // What a launch asks for: the tables, and the slots behind them.
  std::size_t bytes() const { return tables_fit() ? table_bytes_ : 0; }
  std::size_t bytes(const Bulk& bulk) const {
    return bulk.slots == 0
               ? bytes()
               : static_cast<std::size_t>(bulk.at) +
                     static_cast<std::size_t>(bulk.slots) * static_cast<std::size_t>(bulk.slot_bytes());
  }

 private:
  std::int64_t row_bytes_, bulk_bytes_ = 0;
  std::size_t table_bytes_;
};

}  // namespace moelane::gpu
