// AVX2 with FMA and F16C (Haswell and later, Zen and later).

#include "cpu/kernels.hpp"

#if defined(MOELANE_X86_ROWS)

#include <immintrin.h>

// The whole rest of the file, and nothing of the standard library: see rows_avx512.cpp.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#include "cpu/row_body.hpp"

namespace moelane::cpu {
namespace {

struct Avx2 {
  using Reg = __m256;
  static constexpr int kWidth = 8;

  struct Line {
    __m256i low;
    __m256i high;
  };

  template <DType type>
  static Reg load(const void* from) {
    if constexpr (type == DType::fp32) return _mm256_loadu_ps(static_cast<const float*>(from));
    if constexpr (type == DType::fp8_e4m3)
      return from_e4m3(_mm_loadl_epi64(static_cast<const __m128i*>(from)));
    const __m128i narrow = _mm_loadu_si128(static_cast<const __m128i*>(from));
    if constexpr (type == DType::fp16) return _mm256_cvtph_ps(narrow);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
  }

  static Reg broadcast(float value) { return _mm256_set1_ps(value); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }

  template <DType type>
  static Line pack(const Reg* values) {
    if constexpr (type == DType::fp32) return {canonical_bits(values[0]), canonical_bits(values[1])};
    if constexpr (type == DType::bf16) {
      return {_mm256_set_m128i(to_bf16(values[1]), to_bf16(values[0])),
              _mm256_set_m128i(to_bf16(values[3]), to_bf16(values[2]))};
    }
    if constexpr (type == DType::fp16) {
      return {_mm256_set_m128i(to_half(values[1]), to_half(values[0])),
              _mm256_set_m128i(to_half(values[3]), to_half(values[2]))};
    }
  }

  static Line load_line(const void* from) {
    const auto* halves = static_cast<const __m256i*>(from);
    return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
  }
  static void store(void* to, const Line& line) {
    auto* halves = static_cast<__m256i*>(to);
    _mm256_storeu_si256(halves, line.low);
    _mm256_storeu_si256(halves + 1, line.high);
  }
  static void stream(void* to, const Line& line) {
    auto* halves = static_cast<__m256i*>(to);
    _mm256_stream_si256(halves, line.low);
    _mm256_stream_si256(halves + 1, line.high);
  }

 private:
  // See rows_avx512.cpp.
  static Reg from_e4m3(__m128i bytes) {
    const __m128i wide = _mm_cvtepu8_epi16(bytes);
    const __m128i rest = _mm_and_si128(wide, _mm_set1_epi16(0x7F));
    const __m128i sign = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x80)), 8);
    const __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(rest, _mm_set1_epi16(0x7F)), _mm_set1_epi16(0x7C00));
    const __m128i half = _mm_or_si128(_mm_or_si128(_mm_slli_epi16(rest, 7), sign), nan);
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0F));
  }

  static __m256i canonical_bits(Reg value) {
    const Reg nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    const Reg canonical = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
    return _mm256_castps_si256(_mm256_blendv_ps(value, canonical, nan));
  }

  static __m128i to_bf16(Reg value) {
    const __m256i bits = canonical_bits(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i narrow = _mm256_srli_epi32(rounded, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(narrow), _mm256_extracti128_si256(narrow, 1));
  }

  static __m128i to_half(Reg value) {
    return _mm256_cvtps_ph(_mm256_castsi256_ps(canonical_bits(value)),
                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

constexpr Kernels kKernels = make_kernels<Avx2>(Isa::avx2, Copy<Avx2, false>::run, Copy<Avx2, true>::run);

}  // namespace
}  // namespace moelane::cpu

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace moelane::cpu {
const Kernels* avx2_kernels() { return &kKernels; }
}  // namespace moelane::cpu

#else

namespace moelane::cpu {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace moelane::cpu

#endif
