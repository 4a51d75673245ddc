#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "moelane/tensor.hpp"
#include "random.hpp"

namespace moelane::test {

// A tensor, wherever it will lie: strides in elements, any sign; `shift`: bytes by which it misses a 64-byte
// boundary.
struct Spec {
  DType type = DType::uint8;
  std::vector<std::int64_t> shape, strides;
  std::size_t shift = 0;

  static Spec dense(DType type, std::vector<std::int64_t> shape);
  std::size_t bytes() const;   // with the guards on both sides
  std::size_t origin() const;  // of element 0 in these
};

// A tensor between guards, in memory of its own or in a given one (64-byte aligned, spec.bytes() long), and
// beside it an image of what every byte of that memory has to be: elements, the gaps that strides leave,
// guards.
class Guarded {
 public:
  Guarded() = default;
  explicit Guarded(const Spec& spec, std::byte* memory = nullptr);
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  Guarded(Guarded&&) = default;
  Guarded& operator=(Guarded&&) = default;

  const TensorView& view() const { return view_; }
  std::byte* at(std::int64_t i, std::int64_t j = 0, std::int64_t k = 0) const {
    return memory_ + offset(i, j, k);
  }
  std::byte* wanted(std::int64_t i, std::int64_t j = 0, std::int64_t k = 0) {
    return image_.data() + offset(i, j, k);
  }

  void poison(tools::Random& random);         // every byte, in the memory and in the image
  void accept();                              // whatever the memory holds now is right
  void check(const std::string& name) const;  // throws Wrong where the memory differs from its image

 private:
  std::size_t offset(std::int64_t i, std::int64_t j, std::int64_t k) const;
  std::string place(std::size_t offset) const;

  Spec spec_;
  std::vector<std::byte> own_, image_;
  std::byte* memory_ = nullptr;
  TensorView view_;
};

}  // namespace moelane::test
