#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moelane {

// Element types. Rows to dispatch are fp8_e4m3, bf16, fp16 or fp32; rows to combine and the combined output
// are bf16, fp16 or fp32; expert ids are int32 or int64; weights are fp32; scales are opaque and may be any
// type.
enum class DType : std::uint8_t { fp8_e4m3, bf16, fp16, fp32, int32, int64, uint8 };

// Bytes of one element.
constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::fp8_e4m3:
    case DType::uint8:
      return 1;
    case DType::bf16:
    case DType::fp16:
      return 2;
    case DType::fp32:
    case DType::int32:
      return 4;
    case DType::int64:
      return 8;
  }
  return 0;
}

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::fp8_e4m3:
      return "fp8_e4m3";
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
    case DType::fp32:
      return "fp32";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
    case DType::uint8:
      return "uint8";
  }
  return "?";
}

}  // namespace moelane
