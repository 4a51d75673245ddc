#include "routing/expert_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>

#include "cli/text.hpp"
#include "routing/strict_json.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;

constexpr std::uint64_t max_count_sum = std::uint64_t{1} << 62;

// Counts are a list, or an object of numbers; an object of anything else holds further levels.
bool is_counts(const json& node) {
  if (!node.is_object()) return node.is_array();
  return std::any_of(node.begin(), node.end(), [](const json& value) { return value.is_number(); });
}

class CountsReader {
 public:
  CountsReader(const InputFile& file, int experts) : file_(file), experts_(experts) {}

  Popularity read(const json& root, std::string_view selector) {
    const json* node = &root;
    const json* model = &root;
    for (std::string_view rest = selector; !rest.empty();) {
      const std::size_t end = rest.find('/');
      node = &child(*node, rest.substr(0, end));
      if (model == &root) model = node;
      rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    }
    std::string path(selector);
    while (!is_counts(*node)) {
      if (!node->is_object()) {
        file_.refuse(fmt::format("{} is {}, must be counts", place(path), shown(*node)));
      }
      if (node->size() != 1) file_.refuse(choice(*node, path));
      path += (path.empty() ? "" : "/") + node->begin().key();
      node = &*node->begin();
      if (model == &root) model = node;
    }
    return popularity(*node, *model, path);
  }

 private:
  const json& child(const json& node, std::string_view key) const {
    if (!node.is_object() || is_counts(node)) {
      file_.refuse(fmt::format("has nothing below its counts, but the selector goes on with {}", quote(key)));
    }
    const auto found = node.find(std::string(key));
    if (found == node.end()) {
      file_.refuse(fmt::format("has no {} as its selector wants, only {}", quote(key), keys(node)));
    }
    return *found;
  }

  // Some of an object's keys, for a sentence.
  static std::string keys(const json& node) {
    constexpr std::size_t most = 8;
    std::string list;
    std::size_t count = 0;
    for (auto entry = node.begin(); entry != node.end() && count < most; ++entry, ++count) {
      list += (count == 0 ? "" : ", ") + quote(entry.key(), 30);
    }
    if (node.size() > most) list += fmt::format(" and {} more", node.size() - most);
    return list.empty() ? "nothing" : list;
  }

  // Why counts cannot be taken from an object with several entries (or none), and how to choose.
  static std::string choice(const json& node, const std::string& path) {
    if (node.empty()) return fmt::format("{} is empty, must hold counts", place(path));
    std::string example = path;
    const json* step = &node;
    while (step->is_object() && !is_counts(*step) && !step->empty() && example.size() < 100) {
      example += (example.empty() ? "" : "/") + step->begin().key();
      step = &*step->begin();
    }
    return fmt::format("{} holds several sets of counts ({}), choose one after the file's name, such as {}",
                       place(path), keys(node), quote('#' + example, 100));
  }

  static std::string place(const std::string& path) {
    return path.empty() ? "the top level" : fmt::format("the entry {}", quote(path, 100));
  }

  Popularity popularity(const json& counts, const json& model, const std::string& path) const {
    // An expert that was never picked may be missing, even the last one: all sets of a model tell.
    const std::size_t found = experts_in(model);
    if (found != static_cast<std::size_t>(experts_)) {
      file_.refuse(
          fmt::format("{} has counts of {} experts, but there are {}", place(path), found, experts_));
    }
    Popularity result{std::vector<std::uint64_t>(found, 0), std::vector<std::int32_t>(found), Tail::uniform};
    std::iota(result.experts.begin(), result.experts.end(), 0);
    std::uint64_t sum = 0;
    const auto add = [&](std::size_t expert, const json& count) {
      if (!count.is_number_unsigned() || count.get<std::uint64_t>() > max_count_sum - sum) {
        file_.refuse(fmt::format(
            "{} has the count {} for expert {}, must be an integer from 0 with a sum of at most {}",
            place(path), shown(count), expert, max_count_sum));
      }
      result.weights[expert] = count.get<std::uint64_t>();
      sum += result.weights[expert];
    };
    if (counts.is_array()) {
      for (std::size_t expert = 0; expert < counts.size(); ++expert) add(expert, counts[expert]);
    } else {
      for (auto entry = counts.begin(); entry != counts.end(); ++entry) {
        add(expert_id(entry.key()), entry.value());
      }
    }
    if (sum == 0) file_.refuse(fmt::format("{} has no count above 0", place(path)));
    return result;
  }

  std::size_t experts_in(const json& node) const {
    if (node.is_array()) return node.size();
    std::size_t most = 0;
    const bool counts = is_counts(node);
    if (!node.is_object()) return most;
    for (auto entry = node.begin(); entry != node.end(); ++entry) {
      most = std::max(most, counts ? expert_id(entry.key()) + 1 : experts_in(entry.value()));
    }
    return most;
  }

  std::size_t expert_id(const std::string& key) const {
    std::uint32_t id = 0;
    const std::from_chars_result result = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool whole = result.ec == std::errc{} && result.ptr == key.data() + key.size();
    // "01" would be a second name of 1.
    if (!whole || (key.size() > 1 && key[0] == '0')) {
      file_.refuse(fmt::format("has counts with the key {}, must be an expert number from 0", quote(key)));
    }
    return id;
  }

  const InputFile& file_;
  int experts_;
};

}  // namespace

Popularity read_expert_counts(const InputFile& file, std::string_view selector, int experts) {
  const json root = strict_json(file, "the text", file.text(max_json_bytes));
  return CountsReader(file, experts).read(root, selector);
}

}  // namespace moelane::tools
