#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/copy_body.hpp"
#include "cpu/kernels.hpp"
#include "cpu/sum_body.hpp"

// All kernels of one instruction set, from a vector type V (rows_*.cpp):
//   V::Reg, kWidth                  float32 values in a register
//   V::load<type>(p)                kWidth elements, exactly; V::broadcast, fma, add
//   V::Line, pack<type>(regs)       64 bytes, rounded from 64 / size_of(type) values; NaN canonical
//   V::store, stream(p, line)       at any alignment; past the caches, at a multiple of 64
//   V::load_line(p)                 64 bytes as they are (only for Copy)
// The three body headers are included below a target pragma. What is in them must be a template over V, a
// local type: so nothing compiled for one instruction set has a name that the linker could share with
// another.
namespace moelane::cpu {

template <typename V, DType In, DType Out>
void convert(void* dst, const void* src, std::int64_t n) {
  constexpr auto kIn = static_cast<std::int64_t>(size_of(In));
  constexpr auto kOut = static_cast<std::int64_t>(size_of(Out));
  constexpr std::int64_t kElements = 64 / kOut;  // a line of the target
  const auto line = [](const char* from, char* to) {
    typename V::Reg values[kRegsPerLine<V, Out>];
#pragma GCC unroll 16
    for (int r = 0; r < kRegsPerLine<V, Out>; ++r)
      values[r] = V::template load<In>(from + r * V::kWidth * kIn);
    V::store(to, V::template pack<Out>(values));
  };
  const auto* from = static_cast<const char*>(src);
  auto* to = static_cast<char*>(dst);
  std::int64_t i = 0;
  for (; i + kElements <= n; i += kElements) line(from + i * kIn, to + i * kOut);
  if (i >= n) return;
  alignas(64) char in[kElements * kIn] = {};
  alignas(64) char out[64];
  __builtin_memcpy(in, from + i * kIn, static_cast<std::size_t>((n - i) * kIn));
  line(in, out);
  __builtin_memcpy(to + i * kOut, out, static_cast<std::size_t>((n - i) * kOut));
}

template <typename V, DType In>
constexpr void fill_sums(Kernels::Sum (&sums)[3]) {
  sums[float_slot(DType::bf16)] = Sum<V, In, DType::bf16>::run;
  sums[float_slot(DType::fp16)] = Sum<V, In, DType::fp16>::run;
  sums[float_slot(DType::fp32)] = Sum<V, In, DType::fp32>::run;
}

template <typename V>
constexpr Kernels make_kernels(Isa isa, Kernels::Copy cached, Kernels::Copy streamed) {
  Kernels all{};
  all.isa = isa;
  all.copy_cached = cached;
  all.copy_stream = streamed;
  fill_sums<V, DType::bf16>(all.sum[float_slot(DType::bf16)]);
  fill_sums<V, DType::fp16>(all.sum[float_slot(DType::fp16)]);
  fill_sums<V, DType::fp32>(all.sum[float_slot(DType::fp32)]);
  all.to_float[float_slot(DType::bf16)] = convert<V, DType::bf16, DType::fp32>;
  all.to_float[float_slot(DType::fp16)] = convert<V, DType::fp16, DType::fp32>;
  all.to_float[float_slot(DType::fp32)] = convert<V, DType::fp32, DType::fp32>;
  all.to_float[kFp8Slot] = convert<V, DType::fp8_e4m3, DType::fp32>;
  all.from_float[float_slot(DType::bf16)] = convert<V, DType::fp32, DType::bf16>;
  all.from_float[float_slot(DType::fp16)] = convert<V, DType::fp32, DType::fp16>;
  all.from_float[float_slot(DType::fp32)] = convert<V, DType::fp32, DType::fp32>;
  return all;
}

}  // namespace moelane::cpu
