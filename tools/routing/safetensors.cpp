#include "routing/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "cli/text.hpp"
#include "routing/strict_json.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensor bytes are taken as they are");

constexpr std::uint64_t length_bytes = 8;

constexpr std::array<std::pair<std::string_view, std::uint64_t>, 15> element_bytes{{{"BOOL", 1},
                                                                                    {"U8", 1},
                                                                                    {"I8", 1},
                                                                                    {"F8_E4M3", 1},
                                                                                    {"F8_E5M2", 1},
                                                                                    {"I16", 2},
                                                                                    {"U16", 2},
                                                                                    {"F16", 2},
                                                                                    {"BF16", 2},
                                                                                    {"I32", 4},
                                                                                    {"U32", 4},
                                                                                    {"F32", 4},
                                                                                    {"I64", 8},
                                                                                    {"U64", 8},
                                                                                    {"F64", 8}}};

// A tensor's name and field, for a sentence.
std::string field(const std::string& name, std::string_view key) {
  return fmt::format("{} of tensor {}", key, quote(name));
}

std::vector<std::uint64_t> integers(const InputFile& file, const std::string& name, const json& entry,
                                    const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end()) file.refuse(fmt::format("{} is missing", field(name, key)));
  if (!found->is_array()) {
    file.refuse(fmt::format("{} is {}, must be a list of integers", field(name, key), shown(*found)));
  }
  std::vector<std::uint64_t> result;
  for (const json& value : *found) {
    if (!value.is_number_unsigned()) {
      file.refuse(fmt::format("{} holds {}, must be integers from 0", field(name, key), shown(value)));
    }
    result.push_back(value.get<std::uint64_t>());
  }
  return result;
}

TensorEntry parse_entry(const InputFile& file, const std::string& name, const json& entry,
                        std::uint64_t data_begin) {
  if (!entry.is_object()) {
    file.refuse(fmt::format("tensor {} is {}, must be an object", quote(name), shown(entry)));
  }
  TensorEntry result;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) {
    file.refuse(fmt::format("{} is {}, must be a string", field(name, "dtype"),
                            dtype == entry.end() ? "missing" : shown(*dtype)));
  }
  result.dtype = dtype->get<std::string>();
  result.shape = integers(file, name, entry, "shape");
  const std::vector<std::uint64_t> offsets = integers(file, name, entry, "data_offsets");
  const std::uint64_t data_bytes = file.size() - data_begin;
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    file.refuse(fmt::format("{} is {}, must be begin <= end <= {}", field(name, "data_offsets"),
                            shape_text(offsets), data_bytes));
  }
  result.begin = data_begin + offsets[0];
  result.end = data_begin + offsets[1];

  std::uint64_t bytes = tensor_element_bytes(result.dtype);
  if (bytes == 0) return result;  // nobody reads it; only its place matters
  for (const std::uint64_t extent : result.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      file.refuse(fmt::format("{} is {}, which needs more than 2^64 bytes", field(name, "shape"),
                              shape_text(result.shape)));
    }
  }
  if (bytes != offsets[1] - offsets[0]) {
    file.refuse(fmt::format("{} is {} of {}, which needs {} bytes, but data_offsets has {}",
                            field(name, "shape"), shape_text(result.shape), result.dtype, bytes,
                            offsets[1] - offsets[0]));
  }
  return result;
}

// The format wants the tensors to fill the data, one right after the other.
void check_tiling(const InputFile& file, const std::map<std::string, TensorEntry>& tensors,
                  std::uint64_t data_begin) {
  std::vector<const std::pair<const std::string, TensorEntry>*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* left, const auto* right) {
    return std::pair(left->second.begin, left->second.end) <
           std::pair(right->second.begin, right->second.end);
  });
  std::uint64_t expected = data_begin;
  for (const auto* tensor : order) {
    if (tensor->second.begin != expected) {
      file.refuse(
          fmt::format("tensor {} begins at byte {} of the data, must be {}, where the one before ends",
                      quote(tensor->first), tensor->second.begin - data_begin, expected - data_begin));
    }
    expected = tensor->second.end;
  }
  if (expected != file.size()) {
    file.refuse(fmt::format("has {} bytes after its last tensor, must have none", file.size() - expected));
  }
}

}  // namespace

std::uint64_t tensor_element_bytes(const std::string& dtype) {
  for (const auto& [name, bytes] : element_bytes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  constexpr std::size_t most = 6;
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(shape.size(), most); ++i) {
    text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  }
  return text + (shape.size() > most ? ", ...]" : "]");
}

std::map<std::string, TensorEntry> read_safetensors_header(const InputFile& file) {
  if (file.size() < length_bytes) {
    file.refuse(fmt::format("has {} bytes, a safetensors file has at least {}", file.size(), length_bytes));
  }
  std::uint64_t length = 0;
  file.read(0, &length, length_bytes);
  const std::uint64_t allowed = std::min(max_json_bytes, file.size() - length_bytes);
  if (length > allowed) {
    file.refuse(fmt::format("the header length at byte 0 is {}, at most {} is allowed", length, allowed));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read(length_bytes, text.data(), text.size());
  if (!text.starts_with('{')) {
    file.refuse(fmt::format("the header at byte 8 is {}, must begin with a brace", quote(text)));
  }
  const json header = strict_json(file, "the header", text);
  const std::uint64_t data_begin = length_bytes + length;
  std::map<std::string, TensorEntry> tensors;
  for (auto entry = header.begin(); entry != header.end(); ++entry) {
    if (entry.key() == "__metadata__") continue;
    tensors.emplace(entry.key(), parse_entry(file, entry.key(), entry.value(), data_begin));
  }
  check_tiling(file, tensors, data_begin);
  return tensors;
}

}  // namespace moelane::tools
