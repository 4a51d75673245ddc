// Plain C++ for any machine, and for ThreadSanitizer: every load and store is one that it instruments.

#include <bit>
#include <cmath>
#include <cstring>

#include "cpu/convert.hpp"
#include "cpu/kernels.hpp"
#include "cpu/row_body.hpp"

namespace moelane::cpu {
namespace {

// One float stands for a vector register.
struct Portable {
  using Reg = float;
  static constexpr int kWidth = 1;

  struct Line {
    std::uint64_t words[8];
  };

  template <typename T>
  static T read(const void* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }

  template <DType type>
  static Reg load(const void* from) {
    if constexpr (type == DType::fp8_e4m3)
      return std::bit_cast<float>(e4m3_to_bits(read<std::uint8_t>(from)));
    if constexpr (type == DType::bf16) return std::bit_cast<float>(bf16_to_bits(read<std::uint16_t>(from)));
    if constexpr (type == DType::fp16) return std::bit_cast<float>(half_to_bits(read<std::uint16_t>(from)));
    if constexpr (type == DType::fp32) return read<float>(from);
  }

  static Reg broadcast(float value) { return value; }
  static Reg fma(Reg a, Reg b, Reg c) { return std::fma(a, b, c); }
  static Reg add(Reg a, Reg b) { return a + b; }

  template <DType type>
  static Line pack(const Reg* values) {
    Line line;
    auto* at = reinterpret_cast<unsigned char*>(&line);
    for (std::size_t i = 0; i < sizeof(Line) / size_of(type); ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(values[i]);
      if constexpr (type == DType::fp32) {
        const std::uint32_t element = canonical(bits);
        std::memcpy(at + i * sizeof element, &element, sizeof element);
      } else {
        const std::uint16_t element = type == DType::bf16 ? bits_to_bf16(bits) : bits_to_half(bits);
        std::memcpy(at + i * sizeof element, &element, sizeof element);
      }
    }
    return line;
  }

  // Word by word: ThreadSanitizer misses a memcpy that the compiler expands in place.
  static void store(void* to, const Line& line) {
    for (std::size_t i = 0; i < 8; ++i) std::memcpy(static_cast<char*>(to) + 8 * i, &line.words[i], 8);
  }
  static void stream(void* to, const Line& line) { store(to, line); }
};

// The C library knows the machine's best copy, and sanitizers know the C library.
void copy(void* const* dst, int n, const void* src, std::size_t bytes) {
  for (int i = 0; i < n; ++i) std::memcpy(dst[i], src, bytes);
}

constexpr Kernels kKernels = make_kernels<Portable>(Isa::portable, copy, copy);

}  // namespace

const Kernels* portable_kernels() { return &kKernels; }

}  // namespace moelane::cpu
