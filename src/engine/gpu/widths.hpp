#pragma once

#include "gpu/rows.cuh"
#include "protocol/views.hpp"

// By how many bytes at a time rows may be moved, from all addresses and strides that take part.
namespace moelane::gpu {

class Alignment {
 public:
  Alignment& with(const void* address) {
    return with(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address)));
  }
  Alignment& with(std::int64_t bytes) {
    bits_ |= static_cast<std::uint64_t>(bytes);
    return *this;
  }
  Alignment& with(const MatrixView& rows) { return with(rows.base).with(rows.row_stride); }
  Alignment& with(const ExpertRows& rows) {
    return with(rows.base).with(rows.expert_stride).with(rows.row_stride);
  }
  Width width() const { return bits_ % 16 == 0 ? Width::sixteen : bits_ % 4 == 0 ? Width::four : Width::one; }
  bool wide() const { return width() == Width::sixteen; }

 private:
  std::uint64_t bits_ = 0;
};

inline Scales scales_of(std::int32_t columns, std::int32_t size, std::int64_t from_stride,
                        std::int64_t to_stride, Alignment rows) {
  return {columns, size, from_stride, to_stride, rows.with(std::int64_t{columns} * size).width()};
}

}  // namespace moelane::gpu
