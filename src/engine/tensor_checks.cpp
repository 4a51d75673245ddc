#include "engine/tensor_checks.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <utility>

namespace moelane::tensor_checks {

void refuse(const std::string& what, const std::string& value, const std::string& allowed) {
  throw Error(ErrorKind::argument, fmt::format("{} is {}, allowed is {}", what, value, allowed));
}

std::string shape_text(const TensorView& t) {
  std::string out = "[";
  for (int i = 0; i < std::min(t.ndim, 4); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ", ", t.shape[static_cast<std::size_t>(i)]);
  }
  return out + (t.ndim > 4 ? ", ...]" : "]");
}

void basics(const char* name, const TensorView& t, int ndim, const char* dims) {
  if (!t) refuse(name, "not given", fmt::format("a tensor {}", dims));
  if (t.ndim != ndim) refuse(fmt::format("{}.shape", name), shape_text(t), dims);
  bool empty = false;
  for (int i = 0; i < ndim; ++i) {
    const std::int64_t extent = t.shape[static_cast<std::size_t>(i)];
    if (extent < 0 || extent > INT32_MAX) refuse(fmt::format("{}.shape", name), shape_text(t), dims);
    empty = empty || extent == 0;
  }
  if (t.data == nullptr && !empty)
    refuse(fmt::format("{}.data", name), "null", "the address of its elements");
  // No sum of offsets below overflows.
  constexpr std::int64_t kReach = std::int64_t{1} << 42;
  for (std::size_t i = 0; i < static_cast<std::size_t>(ndim); ++i) {
    const std::int64_t most = t.shape[i] > 1 ? kReach / (t.shape[i] - 1) : INT64_MAX;
    if (t.shape[i] > 1 && (t.strides[i] > most || t.strides[i] < -most)) {
      refuse(fmt::format("{}.strides[{}]", name, i), fmt::format("{}", t.strides[i]),
             fmt::format("-{0} to {0} over {1} elements", most, t.shape[i]));
    }
  }
}

void device(const char* name, const TensorView& t, Device wanted) {
  if (!t || t.device == wanted) return;
  if (wanted == Device::cpu) refuse(fmt::format("{}.device", name), "cuda", "cpu in a world of CPU ranks");
  refuse(fmt::format("{}.device", name), "cpu", "cuda in a world of GPU ranks");
}

void dtype(const char* name, const TensorView& t, DType wanted) {
  if (t.dtype != wanted) {
    refuse(fmt::format("{}.dtype", name), std::string(name_of(t.dtype)), std::string(name_of(wanted)));
  }
}

void aligned_to(const char* name, const TensorView& t) {
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  if (address % size_of(t.dtype) != 0) {
    refuse(fmt::format("{}.data", name), fmt::format("{:#x}", address),
           fmt::format("a multiple of the {} bytes of its elements", size_of(t.dtype)));
  }
}

void extent(const char* name, const TensorView& t, int dim, std::int64_t low, std::int64_t high,
            const char* dims) {
  const std::int64_t value = t.shape[static_cast<std::size_t>(dim)];
  if (value >= low && value <= high) return;
  const std::string range = low == high         ? fmt::format("{}", low)
                            : high == INT32_MAX ? fmt::format("at least {}", low)
                                                : fmt::format("{} to {}", low, high);
  throw Error(ErrorKind::argument, fmt::format("{}.shape is {}, allowed is {} with {} in dimension {}", name,
                                               shape_text(t), dims, range, dim));
}

std::int64_t stride(const TensorView& t, int dim) {
  const auto d = static_cast<std::size_t>(dim);
  return t.shape[d] <= 1 ? static_cast<std::int64_t>(size_of(t.dtype))
                         : t.strides[d] * static_cast<std::int64_t>(size_of(t.dtype));
}

std::int64_t outer_stride(const TensorView& t, int dim) {
  return t.shape[static_cast<std::size_t>(dim)] <= 1 ? 0 : stride(t, dim);
}

void unit_stride(const char* name, const TensorView& t, int dim) {
  if (stride(t, dim) != static_cast<std::int64_t>(size_of(t.dtype))) {
    refuse(fmt::format("{}.strides[{}]", name, dim),
           fmt::format("{}", t.strides[static_cast<std::size_t>(dim)]),
           "1: the elements of a row lie side by side");
  }
}

void no_overlap(const char* name, const TensorView& t) {
  std::array<std::pair<std::int64_t, std::int64_t>, 4> steps{};
  std::size_t n = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.ndim); ++i) {
    if (t.shape[i] == 0) return;
    if (t.shape[i] > 1) steps[n++] = {std::abs(t.strides[i]), t.shape[i]};
  }
  for (std::size_t i = 1; i < n; ++i) {
    for (std::size_t j = i; j > 0 && steps[j] < steps[j - 1]; --j) std::swap(steps[j], steps[j - 1]);
  }
  std::int64_t reach = 1;
  for (std::size_t i = 0; i < n; ++i) {
    if (steps[i].first < reach) {
      refuse(fmt::format("{}.strides", name),
             fmt::format("{} over {} elements that lie there already", steps[i].first, reach),
             "strides by which no two elements share memory");
    }
    reach += steps[i].first * (steps[i].second - 1);
  }
}

void vector(const char* name, const TensorView& t, std::int64_t least, const char* dims) {
  basics(name, t, 1, dims);
  dtype(name, t, DType::int32);
  aligned_to(name, t);
  extent(name, t, 0, least, INT32_MAX, dims);
  unit_stride(name, t, 0);
}

}  // namespace moelane::tensor_checks
