#include "routing/safetensors_routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <limits>
#include <span>

#include "cli/text.hpp"
#include "moelane/error.hpp"
#include "routing/recorded_values.hpp"
#include "routing/safetensors.hpp"

namespace moelane::tools {
namespace {

constexpr const char* ids_name = "topk_ids";
constexpr const char* weights_name = "topk_weights";

// Elements that are converted at a time, so that a file is never held in memory beside its result.
constexpr std::uint64_t chunk_elements = 1 << 17;

float from_half(std::uint16_t bits) {
  const float sign = (bits & 0x8000U) != 0 ? -1.0F : 1.0F;
  const int exponent = (bits >> 10) & 0x1f;
  const auto fraction = static_cast<float>(bits & 0x3ffU);
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024.0F + fraction, exponent - 25);
}

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

const TensorEntry& find(const InputFile& file, const std::map<std::string, TensorEntry>& tensors,
                        const char* name, std::span<const std::string_view> dtypes, int topk) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    file.refuse(fmt::format("has no tensor \"{}\" among its {}, must have topk_ids and topk_weights", name,
                            tensors.size()));
  }
  const TensorEntry& entry = found->second;
  if (std::find(dtypes.begin(), dtypes.end(), entry.dtype) == dtypes.end()) {
    std::string allowed;
    for (const std::string_view dtype : dtypes) allowed.append(allowed.empty() ? "" : " or ").append(dtype);
    file.refuse(fmt::format("dtype of tensor \"{}\" is {}, must be {}", name, quote(entry.dtype), allowed));
  }
  if (entry.shape.size() != 2 || entry.shape[0] == 0 || entry.shape[1] != static_cast<std::uint64_t>(topk)) {
    file.refuse(fmt::format("shape of tensor \"{}\" is {}, must be [tokens >= 1, topk = {}]", name,
                            shape_text(entry.shape), topk));
  }
  return entry;
}

// Hands `count` elements of type Stored to `take(index, element)`.
template <typename Stored, typename Take>
void for_each_element(const InputFile& file, const TensorEntry& entry, std::uint64_t count, Take take) {
  std::vector<Stored> chunk(static_cast<std::size_t>(std::min(count, chunk_elements)));
  for (std::uint64_t first = 0; first < count; first += chunk_elements) {
    const auto size = static_cast<std::size_t>(std::min(count - first, chunk_elements));
    file.read(entry.begin + first * sizeof(Stored), chunk.data(), size * sizeof(Stored));
    for (std::size_t i = 0; i < size; ++i) take(first + i, chunk[i]);
  }
}

std::string element(const char* name, std::uint64_t index, int topk) {
  const auto k = static_cast<std::uint64_t>(topk);
  return fmt::format("{} of token {}, k {}", name, index / k, index % k);
}

}  // namespace

bool looks_like_safetensors(const InputFile& file) {
  if (file.size() < 9) return false;
  // The length's upper bytes are zero, which text never has, whatever its first byte is.
  char start[9];
  file.read(0, start, sizeof start);
  return start[8] == '{' && start[4] == 0 && start[5] == 0 && start[6] == 0 && start[7] == 0;
}

Routing read_safetensors_routing(const InputFile& file, int experts, int topk) {
  using namespace std::string_view_literals;
  const auto tensors = read_safetensors_header(file);
  const TensorEntry& ids = find(file, tensors, ids_name, std::array{"I32"sv, "I64"sv}, topk);
  const TensorEntry& weights =
      find(file, tensors, weights_name, std::array{"F32"sv, "F16"sv, "BF16"sv, "F64"sv}, topk);
  const std::uint64_t tokens = ids.shape[0];
  if (weights.shape[0] != tokens) {
    file.refuse(
        fmt::format("topk_ids has {} tokens and topk_weights {}, must be as many", tokens, weights.shape[0]));
  }
  if (tokens > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
    file.refuse(
        fmt::format("has {} tokens, at most {} are allowed", tokens, std::numeric_limits<int>::max()));
  }
  // The header check has compared the shapes with the file's bytes, so its size bounds these vectors.
  const std::uint64_t count = tokens * static_cast<std::uint64_t>(topk);
  Routing routing{static_cast<int>(tokens), topk, {}, {}};
  routing.ids.resize(static_cast<std::size_t>(count));
  routing.weights.resize(static_cast<std::size_t>(count));

  const auto take_id = [&](std::uint64_t index, std::int64_t id) {
    if (!is_id(id, experts)) refuse_id(file, element(ids_name, index, topk), id, experts);
    routing.ids[static_cast<std::size_t>(index)] = static_cast<std::int32_t>(id);
  };
  // Every type passes through double, which holds its values exactly.
  const auto take_weight = [&](std::uint64_t index, double weight) {
    constexpr auto most = static_cast<double>(std::numeric_limits<float>::max());
    if (!(std::abs(weight) <= most)) refuse_weight(file, element(weights_name, index, topk), weight);
    routing.weights[static_cast<std::size_t>(index)] = static_cast<float>(weight);
  };
  if (ids.dtype == "I32") {
    for_each_element<std::int32_t>(file, ids, count, take_id);
  } else {
    for_each_element<std::int64_t>(file, ids, count, take_id);
  }
  if (weights.dtype == "F32") {
    for_each_element<float>(file, weights, count, take_weight);
  } else if (weights.dtype == "F64") {
    for_each_element<double>(file, weights, count, take_weight);
  } else {
    const auto convert = weights.dtype == "F16" ? from_half : from_bf16;
    for_each_element<std::uint16_t>(file, weights, count, [&](std::uint64_t i, std::uint16_t bits) {
      take_weight(i, static_cast<double>(convert(bits)));
    });
  }
  return routing;
}

void write_safetensors_routing(const std::string& path, const Routing& routing) {
  const auto count = static_cast<std::size_t>(std::max(routing.tokens, 0)) *
                     static_cast<std::size_t>(std::max(routing.topk, 0));
  if (routing.tokens < 1 || routing.topk < 1 || routing.ids.size() != count ||
      routing.weights.size() != count) {
    throw Error(
        ErrorKind::argument,
        fmt::format("routing has {} ids and {} weights, must be [tokens, topk] = [{}, {}] and not empty",
                    routing.ids.size(), routing.weights.size(), routing.tokens, routing.topk));
  }
  const std::size_t half = count * sizeof(float);
  std::string header = fmt::format(R"({{"{}":{{"dtype":"I32","shape":[{},{}],"data_offsets":[0,{}]}},)"
                                   R"("{}":{{"dtype":"F32","shape":[{},{}],"data_offsets":[{},{}]}}}})",
                                   ids_name, routing.tokens, routing.topk, half, weights_name, routing.tokens,
                                   routing.topk, half, 2 * half);
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the data is aligned for whoever maps the file
  const std::uint64_t length = header.size();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  const auto write = [&out](const void* from, std::size_t bytes) {
    out.write(static_cast<const char*>(from), static_cast<std::streamsize>(bytes));
  };
  write(&length, sizeof length);
  write(header.data(), header.size());
  write(routing.ids.data(), half);
  write(routing.weights.data(), half);
  out.flush();
  if (!out) {
    throw Error(ErrorKind::argument, fmt::format("routing file {} cannot be written", quote(path, 200)));
  }
}

}  // namespace moelane::tools
