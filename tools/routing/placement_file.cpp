#include "routing/placement_file.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <new>
#include <nlohmann/json.hpp>

#include "cli/text.hpp"
#include "moelane/error.hpp"
#include "routing/input_file.hpp"
#include "routing/strict_json.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;

const json& rank_list(const InputFile& file, const json& root) {
  if (root.is_array()) return root;
  if (!root.is_object()) {
    file.refuse(fmt::format("is {}, must be {{\"rank_of\": [...]}} or a list of ranks", shown(root)));
  }
  for (auto entry = root.begin(); entry != root.end(); ++entry) {
    // A misspelt key would otherwise be a placement that is not what its author meant.
    if (entry.key() != "rank_of") {
      file.refuse(fmt::format("has the key {}, must be \"rank_of\"", quote(entry.key())));
    }
  }
  const auto found = root.find("rank_of");
  if (found == root.end()) file.refuse("has no \"rank_of\", must be {\"rank_of\": [...]} or a list of ranks");
  if (!found->is_array()) file.refuse(fmt::format("rank_of is {}, must be a list of ranks", shown(*found)));
  return *found;
}

std::vector<std::int32_t> parse(const InputFile& file, int experts, int ranks) {
  const json root = strict_json(file, "the text", file.text(max_json_bytes));
  const json& list = rank_list(file, root);
  if (list.size() != static_cast<std::size_t>(experts)) {
    file.refuse(fmt::format("has {} entries, must be one for each of the {} experts", list.size(), experts));
  }
  std::vector<std::int32_t> rank_of;
  rank_of.reserve(list.size());
  for (const json& entry : list) {
    if (!entry.is_number_unsigned() || entry.get<std::uint64_t>() >= static_cast<std::uint64_t>(ranks)) {
      file.refuse(fmt::format("the rank of expert {} is {}, must be an integer from 0 to {}", rank_of.size(),
                              shown(entry), ranks - 1));
    }
    rank_of.push_back(static_cast<std::int32_t>(entry.get<std::uint64_t>()));
  }
  return rank_of;
}

}  // namespace

std::vector<std::int32_t> read_placement(const std::string& path, int experts, int ranks) {
  if (experts < 1 || ranks < 1) {
    throw Error(ErrorKind::argument,
                fmt::format("a placement of {} experts on {} ranks is asked for, both must be 1 or more",
                            experts, ranks));
  }
  try {
    return parse(InputFile("placement file", path), experts, ranks);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::argument,
                fmt::format("placement file {} does not fit in memory", quote(path, 200)));
  }
}

Placement open_placement(const std::string& spec, int experts, int ranks) {
  if (spec == "contiguous") return Placement::even(experts, ranks);
  return Placement::table(read_placement(spec, experts, ranks), ranks);
}

}  // namespace moelane::tools
