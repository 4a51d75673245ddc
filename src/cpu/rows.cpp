#include "cpu/rows.hpp"

#include <bit>
#include <cstring>
#include <string>

#include "cpu/convert.hpp"
#include "cpu/float_env.hpp"
#include "cpu/kernels.hpp"
#include "moelane/error.hpp"

namespace moelane::cpu {
namespace {

[[noreturn]] void refuse(const char* what, DType type, const char* allowed) {
  throw Error(ErrorKind::argument,
              std::string(what) + " is " + std::string(name_of(type)) + "; allowed are " + allowed);
}

int slot_or_refuse(const char* what, DType type) {
  const int slot = float_slot(type);
  if (slot < 0) refuse(what, type, "bf16, fp16, fp32");
  return slot;
}

template <typename T>
T read(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void write(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

void copy(void* dst, const void* src, std::size_t bytes, Store store) {
  copy_to_many(&dst, 1, src, bytes, store);
}

void copy_to_many(void* const* dst, int n, const void* src, std::size_t bytes, Store store) {
  if (bytes == 0) return;  // the pointers may be null then
  const Kernels& kernels = active_kernels();
  (store == Store::stream ? kernels.copy_stream : kernels.copy_cached)(dst, n, src, bytes);
}

void store_fence() {
#if defined(MOELANE_X86_ROWS)
  __builtin_ia32_sfence();
#endif
}

void weighted_sum(const SumArgs& args) {
  const int in = slot_or_refuse("the type of the rows to sum", args.in);
  const int out = slot_or_refuse("the type of the sum", args.out_type);
  const auto kernel = active_kernels().sum[in][out];
  const DefaultFloatEnv env;
  kernel(args);
}

float to_float(const void* element, DType type) {
  switch (type) {
    case DType::fp8_e4m3:
      return std::bit_cast<float>(e4m3_to_bits(read<std::uint8_t>(element)));
    case DType::bf16:
      return std::bit_cast<float>(bf16_to_bits(read<std::uint16_t>(element)));
    case DType::fp16:
      return std::bit_cast<float>(half_to_bits(read<std::uint16_t>(element)));
    case DType::fp32:
      return std::bit_cast<float>(canonical(read<std::uint32_t>(element)));
    default:
      refuse("the type to convert from", type, "fp8_e4m3, bf16, fp16, fp32");
  }
}

void from_float(float value, void* element, DType type) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  switch (type) {
    case DType::bf16:
      return write(element, bits_to_bf16(bits));
    case DType::fp16:
      return write(element, bits_to_half(bits));
    case DType::fp32:
      return write(element, canonical(bits));
    default:
      refuse("the type to convert to", type, "bf16, fp16, fp32");
  }
}

void to_float_row(float* dst, const void* src, std::int64_t n, DType type) {
  const int slot = type == DType::fp8_e4m3 ? kFp8Slot : float_slot(type);
  if (slot < 0) refuse("the type to convert from", type, "fp8_e4m3, bf16, fp16, fp32");
  const auto kernel = active_kernels().to_float[slot];
  const DefaultFloatEnv env;
  kernel(dst, src, n);
}

void from_float_row(void* dst, const float* src, std::int64_t n, DType type) {
  const auto kernel = active_kernels().from_float[slot_or_refuse("the type to convert to", type)];
  const DefaultFloatEnv env;
  kernel(dst, src, n);
}

}  // namespace moelane::cpu
