#include "support/tensors.hpp"

#include <cstdlib>
#include <cstring>

#include "cuda/device.hpp"
#include "support/fleet.hpp"
#include "support/gpu_ranks.hpp"

namespace moelane::test {
namespace {

constexpr std::size_t kGuard = 64;

}  // namespace

Spec Spec::dense(DType type, std::vector<std::int64_t> shape) {
  Spec spec{type, shape, shape, 0};
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) spec.strides[d] = stride;
  return spec;
}

std::size_t Spec::bytes() const {
  std::int64_t reach = 1;
  bool empty = false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    reach += (shape[d] - 1) * std::abs(strides[d]);
    empty = empty || shape[d] == 0;
  }
  return 2 * kGuard + shift + (empty ? 0 : static_cast<std::size_t>(reach) * size_of(type));
}

std::size_t Spec::origin() const {
  std::int64_t before = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 0 && strides[d] < 0) before += (shape[d] - 1) * -strides[d];
  }
  return kGuard + shift + static_cast<std::size_t>(before) * size_of(type);
}

Guarded::Guarded(const Spec& spec, const Site& site, std::byte* memory)
    : spec_(spec), site_(site), image_(spec.bytes()) {
  if (site.device == Device::cuda) {
    if (memory == nullptr) borrowed_ = borrow_memory(site.card, spec.bytes());
    card_ = memory == nullptr ? borrowed_.get() : memory;
  } else {
    memory_ = memory;
  }
  if (memory_ == nullptr) {
    own_.resize(spec.bytes() + 63);
    memory_ = own_.data() + (0 - reinterpret_cast<std::uintptr_t>(own_.data())) % 64;
  }
  view_.data = (card_ == nullptr ? memory_ : card_) + spec.origin();
  view_.device = site.device;
  view_.dtype = spec.type;
  view_.ndim = static_cast<int>(spec.shape.size());
  for (std::size_t d = 0; d < spec.shape.size(); ++d) {
    view_.shape[d] = spec.shape[d];
    view_.strides[d] = spec.strides[d];
  }
}

std::size_t Guarded::offset(std::int64_t i, std::int64_t j, std::int64_t k) const {
  const std::int64_t index[3] = {i, j, k};
  std::int64_t elements = 0;
  for (std::size_t d = 0; d < spec_.shape.size(); ++d) {
    require(index[d] >= 0 && index[d] < spec_.shape[d], "the test itself is wrong: no element " +
                                                            std::to_string(index[d]) + " in dimension " +
                                                            std::to_string(d));
    elements += index[d] * spec_.strides[d];
  }
  return spec_.origin() + static_cast<std::size_t>(elements) * size_of(spec_.type);
}

void Guarded::poison(tools::Random& random) {
  std::size_t i = 0;
  for (; i + 8 <= image_.size(); i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(image_.data() + i, &word, 8);
  }
  for (; i < image_.size(); ++i) image_[i] = static_cast<std::byte>(random.next());
  if (!image_.empty()) std::memcpy(memory_, image_.data(), image_.size());
}

void Guarded::accept() {
  if (!image_.empty()) std::memcpy(image_.data(), memory_, image_.size());
}

// For people: which row of the tensor a byte belongs to, as far as it can be said.
std::string Guarded::place(std::size_t offset) const {
  std::vector<std::int64_t> rows = spec_.shape;
  while (rows.size() < 2) rows.push_back(1);
  const std::size_t last = spec_.shape.size() - 1;
  for (std::int64_t i = 0; i < rows[0]; ++i) {
    for (std::int64_t j = 0; j < (last == 2 ? rows[1] : 1); ++j) {
      for (std::int64_t n = 0; n < spec_.shape[last]; ++n) {
        std::int64_t index[3] = {i, j, 0};
        if (last == 0 && n > 0) continue;
        if (last > 0) index[last] = n;
        const std::size_t element = this->offset(index[0], index[1], index[2]);
        if (offset < element || offset >= element + size_of(spec_.type)) continue;
        std::string name = "element [" + std::to_string(index[0]);
        for (std::size_t d = 1; d <= last; ++d) name += ", " + std::to_string(index[d]);
        return name + "], byte " + std::to_string(offset - element);
      }
    }
  }
  return offset < kGuard + spec_.shift      ? "the guard before it"
         : offset + kGuard >= image_.size() ? "the guard behind it"
                                            : "a gap between rows";
}

void Guarded::upload() const {
  if (card_ != nullptr) gpu::upload(card_, memory_, image_.size(), site_.stream);
}

void Guarded::download() {
  if (card_ != nullptr) gpu::download(memory_, card_, image_.size(), site_.stream);
}

void Guarded::check(const std::string& name) {
  download();
  if (image_.empty() || std::memcmp(memory_, image_.data(), image_.size()) == 0) return;
  std::size_t first = 0, differing = 0;
  for (std::size_t i = image_.size(); i-- > 0;) {
    if (memory_[i] == image_[i]) continue;
    first = i;
    ++differing;
  }
  throw Wrong(name + " has " + std::to_string(differing) + " wrong bytes, the first in " + place(first) +
              ": " + std::to_string(static_cast<int>(memory_[first])) + " instead of " +
              std::to_string(static_cast<int>(image_[first])));
}

}  // namespace moelane::test
