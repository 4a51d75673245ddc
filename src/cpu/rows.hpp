#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/isa.hpp"
#include "moelane/dtype.hpp"

// What a CPU rank does to rows: copy them, sum them with weights, convert them. The way (isa.hpp) is chosen
// once at run time; every way gives the same bits. Nothing here allocates, blocks or keeps state.
namespace moelane::cpu {

// Measured (bench/cpu_rows_bench.cpp), one core writing and another then reading, both together: up to 0.5 MB
// `cached` takes half to two thirds of the time; between 2 and 8 MB they are equal; from 30 MB on `stream`
// takes three quarters, and for the writer alone two thirds (one destination) or half (eight).
enum class Store : std::uint8_t {
  cached,  // ordinary stores: the reader finds the row in a cache
  stream,  // past the caches, without reading the old line first; the caller calls store_fence() before it
           // signals
};

// Copies `bytes` (0 allowed) at any alignment; source and destination do not overlap. Below 256 bytes the
// store is ordinary whatever `store` says.
void copy(void* dst, const void* src, std::size_t bytes, Store store);

// Copies one source to n >= 0 disjoint destinations, a quarter of a KiB to each in turn: the source is read
// from memory once.
void copy_to_many(void* const* dst, int n, const void* src, std::size_t bytes, Store store);

// Orders streamed stores before the stores that follow it; free where there are none. A release store alone
// does not.
void store_fence();

// Asks for the first bytes of a row that will be copied after the present one. Measured with scattered rows
// beyond the last cache and Store::stream: 512 bytes of the next source make a copy 15 % (4 KiB pages) or 6 %
// (2 MiB pages) faster; more bytes are no better, ordinary stores and sums of eight rows gain nothing.
inline void prefetch(const void* row, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(row) + at, 0, 2);
}

// out[j] = round(s_n + old), s_0 = +0, s_i+1 = fma(weights[i], float(rows[i][j]), s_i) in float32, old =
// float(out[j]) if `accumulate` (else nothing is added). One rounding to nearest even, overflow to infinity,
// NaN in the canonical form below, no flush of denormals, whatever floating-point modes the caller runs with
// (they are put back).
struct SumArgs {
  const void* const* rows = nullptr;  // n rows of `hidden` elements of `in`, at any alignment
  const float* weights = nullptr;     // n
  int n = 0;                          // may be 0
  DType in = DType::bf16;             // bf16, fp16, fp32
  std::int64_t hidden = 0;
  void* out = nullptr;           // `hidden` elements of `out_type`, at any alignment; overlaps no row
  DType out_type = DType::bf16;  // bf16, fp16, fp32
  bool accumulate = false;
  Store store = Store::cached;
};
void weighted_sum(const SumArgs& args);  // throws Error(argument) for another type

// Conversions. Every NaN, whatever its sign and payload, becomes the canonical one of the target: bf16
// 0x7FC0, fp16 0x7E00, fp32 0x7FC00000. To float is otherwise exact; from float rounds to nearest even. The
// integer types throw Error(argument), and so does fp8_e4m3 as a target. fp8_e4m3 is OCP's "fn": no
// infinities, 0x7F and 0xFF are NaN.
float to_float(const void* element, DType type);
void from_float(float value, void* element, DType type);

// The same for n elements, at any alignment; dst and src do not overlap.
void to_float_row(float* dst, const void* src, std::int64_t n, DType type);
void from_float_row(void* dst, const float* src, std::int64_t n, DType type);

}  // namespace moelane::cpu
