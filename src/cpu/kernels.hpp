#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/rows.hpp"

// ThreadSanitizer does not see what intrinsics store: its build has plain code only.
#if defined(__SANITIZE_THREAD__)
#define MOELANE_PLAIN_ROWS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MOELANE_PLAIN_ROWS 1
#endif
#endif

#if defined(__x86_64__) && !defined(MOELANE_PLAIN_ROWS)
#define MOELANE_X86_ROWS 1
#endif

namespace moelane::cpu {

// The functions of one instruction set. Sums and conversions expect the default floating-point modes.
struct Kernels {
  using Copy = void (*)(void* const* dst, int n, const void* src, std::size_t bytes);
  using Sum = void (*)(const SumArgs&);
  using Convert = void (*)(void* dst, const void* src, std::int64_t n);

  Isa isa;
  Copy copy_cached;
  Copy copy_stream;
  Sum sum[3][3];          // [in][out] by float_slot()
  Convert to_float[4];    // by float_slot(), then fp8_e4m3
  Convert from_float[3];  // by float_slot()
};

inline constexpr int kFp8Slot = 3;

// Where a kernel for this type stands; -1 for none.
constexpr int float_slot(DType type) {
  switch (type) {
    case DType::bf16:
      return 0;
    case DType::fp16:
      return 1;
    case DType::fp32:
      return 2;
    default:
      return -1;
  }
}

// Null where the build lacks them; whether the machine has the instructions is has_isa()'s business.
const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

// Those of active_isa().
const Kernels& active_kernels();

}  // namespace moelane::cpu
