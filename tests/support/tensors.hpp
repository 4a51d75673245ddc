#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "moelane/tensor.hpp"
#include "moelane/world.hpp"
#include "routing/random.hpp"

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
  bool operator==(const Spec&) const = default;
};

// memcpy, which may also be given nothing at all.
inline void put_bytes(std::byte* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// Where a rank's tensors lie: on the host, or on a card, to which they are copied in the order of a stream.
struct Site {
  Device device = Device::cpu;
  int card = 0;
  Stream stream;
};

// A tensor between guards, in memory of its own or in a given one (64-byte aligned, spec.bytes() long), and
// beside it an image of what every byte of that memory has to be: elements, the gaps that strides leave,
// guards. Of a tensor on a card, the test reads and writes a copy on the host.
class Guarded {
 public:
  Guarded() = default;
  explicit Guarded(const Spec& spec, const Site& site = {}, std::byte* memory = nullptr);
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  Guarded(Guarded&&) = default;
  Guarded& operator=(Guarded&&) = default;

  const Spec& spec() const { return spec_; }
  const TensorView& view() const { return view_; }  // for the engine
  std::byte* elements() const { return memory_ == nullptr ? nullptr : memory_ + spec_.origin(); }
  std::byte* at(std::int64_t i, std::int64_t j = 0, std::int64_t k = 0) const {
    return memory_ + offset(i, j, k);
  }
  std::byte* wanted(std::int64_t i, std::int64_t j = 0, std::int64_t k = 0) {
    return image_.data() + offset(i, j, k);
  }

  void poison(tools::Random& random);   // every byte, in the memory and in the image
  void accept();                        // whatever the memory holds now is right
  void upload() const;                  // before a call that uses it: the card gets what the host has
  void download();                      // after the call: the host gets what the card has
  void check(const std::string& name);  // downloads, and throws Wrong where the memory differs from its image
  std::span<const std::byte> bytes() const { return {memory_, image_.size()}; }

 private:
  std::size_t offset(std::int64_t i, std::int64_t j, std::int64_t k) const;
  std::string place(std::size_t offset) const;

  Spec spec_;
  Site site_;
  std::vector<std::byte> own_, image_;
  std::byte* memory_ = nullptr;  // the host's
  std::shared_ptr<std::byte> borrowed_;
  std::byte* card_ = nullptr;  // null for a tensor of the host
  TensorView view_;
};

}  // namespace moelane::test
