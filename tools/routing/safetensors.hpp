#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "routing/input_file.hpp"

namespace moelane::tools {

// One tensor of a safetensors file; its bytes, row-major and little-endian, lie at [begin, end) of the file.
struct TensorEntry {
  std::string dtype;  // "F32", "I64", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Bytes of one element, or 0 for a type that this program does not know.
std::uint64_t tensor_element_bytes(const std::string& dtype);

// The tensors of a safetensors file by name. Refuses (Error(argument)) what the format forbids: a header
// beyond the file or 100 MB, shapes that overflow or do not fill their bytes, and data that overlaps, has
// holes or is left over.
std::map<std::string, TensorEntry> read_safetensors_header(const InputFile& file);

// A shape for people: "[4, 8]".
std::string shape_text(const std::vector<std::uint64_t>& shape);

}  // namespace moelane::tools
