#include "routing/strict_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/text.hpp"

namespace moelane::tools {
namespace {

constexpr std::size_t max_depth = 16;
constexpr std::size_t max_values = 2'000'000;

// Reads a text once without storing values, and refuses what a document should not be made of. A callback of
// json::parse could do so in one pass, but looks through all earlier entries at the end of each object.
class JsonGuard final : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonGuard(const InputFile& file, std::string_view where, std::string_view text)
      : file_(file), where_(where), text_(text) {}

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(number_integer_t) override { return count(); }
  bool number_unsigned(number_unsigned_t) override { return count(); }
  bool number_float(number_float_t, const string_t&) override { return count(); }
  bool string(string_t&) override { return count(); }
  bool binary(binary_t&) override { return count(); }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) {
      file_.refuse(fmt::format("{} has the key {} twice in one object", where_, quote(name)));
    }
    return true;
  }

  // The parser's own message is not shown: it quotes a string as far as it was read, be it megabytes.
  bool parse_error(std::size_t byte, const std::string&, const nlohmann::json::exception& error) override {
    if (dynamic_cast<const nlohmann::json::out_of_range*>(&error) != nullptr) {
      file_.refuse(fmt::format("{} has a number that is too large before its byte {}", where_, byte));
    }
    const std::size_t end = std::min(byte, text_.size());
    const std::size_t begin = end > 20 ? end - 20 : 0;
    file_.refuse(fmt::format("{} is not JSON in UTF-8: it goes wrong at its byte {}, after {}", where_, byte,
                             quote(text_.substr(begin, end - begin))));
  }

 private:
  bool count() {
    if (++values_ > max_values) file_.refuse(fmt::format("{} has more than {} values", where_, max_values));
    return true;
  }

  bool open() {
    keys_.emplace_back();
    if (keys_.size() > max_depth) {
      file_.refuse(fmt::format("{} nests deeper than {} levels", where_, max_depth));
    }
    return count();
  }

  bool close() {
    keys_.pop_back();
    return true;
  }

  const InputFile& file_;
  std::string_view where_;
  std::string_view text_;
  std::vector<std::set<std::string>> keys_;  // of what is open; empty for an array
  std::size_t values_ = 0;
};

}  // namespace

nlohmann::json strict_json(const InputFile& file, std::string_view where, std::string_view text) {
  // The parser takes a byte 0 for the end of the text and would not look at what follows.
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) file.refuse(fmt::format("{} has a byte 0 at its byte {}", where, zero));
  JsonGuard guard(file, where, text);
  nlohmann::json::sax_parse(text.begin(), text.end(), &guard);
  return nlohmann::json::parse(text.begin(), text.end());
}

}  // namespace moelane::tools
