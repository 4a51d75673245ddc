#include "routing/routing_input.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <vector>

#include "moelane/error.hpp"

namespace moelane::tools {
namespace {

constexpr std::uint64_t max_file_bytes = std::uint64_t{4} << 30;
constexpr std::size_t max_depth = 16;
constexpr std::size_t max_values = 2'000'000;

std::string reason(int number) { return std::generic_category().message(number); }

void require_regular(const InputFile& file, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return;
  const char* kind = S_ISDIR(status.st_mode)    ? "a directory"
                     : S_ISFIFO(status.st_mode) ? "a FIFO"
                     : S_ISSOCK(status.st_mode) ? "a socket"
                                                : "a device";
  file.refuse(fmt::format("is {}, must be a regular file", kind));
}

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

std::string quote(std::string_view text, std::size_t limit) {
  std::string result = "\"";
  for (const char character : text) {
    if (result.size() > limit) return result + "\"...";
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte > 0x7e) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      if (character == '"' || character == '\\') result += '\\';
      result += character;
    }
  }
  return result + '"';
}

std::string shown(const nlohmann::json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  if (value.is_number() || value.is_boolean() || value.is_null()) return value.dump();
  return fmt::format("an {}", value.type_name());
}

InputFile::InputFile(std::string_view what, const std::string& path)
    : name_(fmt::format("{} {}", what, quote(path, 200))) {
  if (path.find('\0') != std::string::npos) refuse("has a name with a byte 0 in it");
  // Looked at first, because opening some devices has effects; and again once open, because the name may by
  // then mean another file (hence O_NONBLOCK: a FIFO would wait for its writer).
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) refuse(fmt::format("cannot be opened: {}", reason(errno)));
  require_regular(*this, status);
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ < 0) refuse(fmt::format("cannot be opened: {}", reason(errno)));
  try {
    if (::fstat(descriptor_, &status) != 0) refuse(fmt::format("cannot be examined: {}", reason(errno)));
    require_regular(*this, status);
    size_ = static_cast<std::uint64_t>(status.st_size);
    if (size_ == 0) refuse("is empty");
    if (size_ > max_file_bytes) {
      refuse(fmt::format("has {} bytes, at most {} are allowed", size_, max_file_bytes));
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, void* to, std::size_t bytes) const {
  auto* place = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t count = ::pread(descriptor_, place, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(fmt::format("cannot be read at byte {}: {}", offset, reason(errno)));
    if (count == 0) refuse(fmt::format("ends at byte {}, {} more are needed", offset, bytes));
    place += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
}

std::string InputFile::text(std::uint64_t limit) const {
  if (size_ > limit) refuse(fmt::format("has {} bytes, at most {} are allowed for its kind", size_, limit));
  std::string result(static_cast<std::size_t>(size_), '\0');
  read(0, result.data(), result.size());
  return result;
}

void InputFile::refuse(std::string_view sentence) const {
  throw Error(ErrorKind::argument, fmt::format("{}: {}", name_, sentence));
}

nlohmann::json strict_json(const InputFile& file, std::string_view where, std::string_view text) {
  // The parser takes a byte 0 for the end of the text and would not look at what follows.
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) file.refuse(fmt::format("{} has a byte 0 at its byte {}", where, zero));
  JsonGuard guard(file, where, text);
  nlohmann::json::sax_parse(text.begin(), text.end(), &guard);
  return nlohmann::json::parse(text.begin(), text.end());
}

}  // namespace moelane::tools
