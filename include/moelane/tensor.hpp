#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "moelane/dtype.hpp"

namespace moelane {

enum class Device : std::uint8_t { cpu, cuda };

// A view of somebody else's memory: nothing is owned. `shape` and `strides` count elements; the first `ndim`
// entries are used. Rows (the last dimension of x, expert rows and outputs) must have stride 1; every other
// stride is free and need not be a multiple of anything. A view without dimensions is "not given"; `data` may
// be null only where a dimension is 0.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::uint8;
  int ndim = 0;
  std::array<std::int64_t, 4> shape{};
  std::array<std::int64_t, 4> strides{};
  Device device = Device::cpu;

  explicit operator bool() const { return ndim != 0; }

  // A dense row-major tensor at `data`. Inputs are never written, so const memory may be viewed.
  static TensorView dense(const void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                          Device device = Device::cpu) {
    TensorView view;
    view.device = device;
    view.data = const_cast<void*>(data);
    view.dtype = dtype;
    for (const std::int64_t extent : shape) {
      if (view.ndim < 4) view.shape[static_cast<std::size_t>(view.ndim++)] = extent;
    }
    std::int64_t stride = 1;
    for (int i = view.ndim; i-- > 0;) {
      view.strides[static_cast<std::size_t>(i)] = stride;
      stride *= view.shape[static_cast<std::size_t>(i)];
    }
    return view;
  }
};

}  // namespace moelane
