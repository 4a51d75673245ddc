// AVX-512 (Skylake-X and later, Zen 4 and later).

#include "cpu/kernels.hpp"

#if defined(MOELANE_X86_ROWS)

#include <immintrin.h>

// The whole rest of the file, and nothing of the standard library: an inline function of it compiled here
// could be the copy that the linker keeps for every caller.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
// g++ 12 warns of its own intrinsics, which leave the unused operand of an unmasked instruction undefined.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#endif

#include "cpu/row_body.hpp"

namespace moelane::cpu {
namespace {

struct Avx512 {
  using Reg = __m512;
  using Line = __m512i;
  static constexpr int kWidth = 16;

  template <DType type>
  static Reg load(const void* from) {
    if constexpr (type == DType::fp32) return _mm512_loadu_ps(from);
    if constexpr (type == DType::fp8_e4m3)
      return from_e4m3(_mm_loadu_si128(static_cast<const __m128i*>(from)));
    const __m256i narrow = _mm256_loadu_si256(static_cast<const __m256i*>(from));
    if constexpr (type == DType::fp16) return _mm512_cvtph_ps(narrow);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
  }

  static Reg broadcast(float value) { return _mm512_set1_ps(value); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }

  template <DType type>
  static Line pack(const Reg* values) {
    if constexpr (type == DType::fp32) return canonical_bits(values[0]);
    if constexpr (type == DType::bf16) return join(to_bf16(values[0]), to_bf16(values[1]));
    if constexpr (type == DType::fp16) return join(to_half(values[0]), to_half(values[1]));
  }

  static Line load_line(const void* from) { return _mm512_loadu_si512(from); }
  static void store(void* to, Line line) { _mm512_storeu_si512(to, line); }
  static void stream(void* to, Line line) { _mm512_stream_si512(static_cast<__m512i*>(to), line); }

 private:
  // An E4M3 number's bits are a half's, shifted, of a 256th of its value; its NaN needs the half's exponent.
  static Reg from_e4m3(__m128i bytes) {
    const __m256i wide = _mm256_cvtepu8_epi16(bytes);
    const __m256i rest = _mm256_and_si256(wide, _mm256_set1_epi16(0x7F));
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8);
    const __m256i nan =
        _mm256_and_si256(_mm256_cmpeq_epi16(rest, _mm256_set1_epi16(0x7F)), _mm256_set1_epi16(0x7C00));
    const __m256i half = _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(rest, 7), sign), nan);
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0F));
  }

  static __m512i canonical_bits(Reg value) {
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(_mm512_castps_si512(value), nan, _mm512_set1_epi32(0x7FC00000));
  }

  // Not VCVTNEPS2BF16, which flushes denormals.
  static __m256i to_bf16(Reg value) {
    const __m512i bits = canonical_bits(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  }

  static __m256i to_half(Reg value) {
    return _mm512_cvtps_ph(_mm512_castsi512_ps(canonical_bits(value)),
                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  static Line join(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
};

constexpr Kernels kKernels =
    make_kernels<Avx512>(Isa::avx512, Copy<Avx512, false>::run, Copy<Avx512, true>::run);

}  // namespace
}  // namespace moelane::cpu

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif

namespace moelane::cpu {
const Kernels* avx512_kernels() { return &kKernels; }
}  // namespace moelane::cpu

#else

namespace moelane::cpu {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace moelane::cpu

#endif
