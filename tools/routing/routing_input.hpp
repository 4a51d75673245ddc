#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace moelane::tools {

// `text` in double quotes for an error sentence: other than printable ASCII escaped, cut after about `limit`
// characters, so that a hostile file can neither flood a terminal nor steer it.
std::string quote(std::string_view text, std::size_t limit = 60);

// The same for a JSON value: numbers and strings are shown, of anything else only its type.
std::string shown(const nlohmann::json& value);

// A regular file of 1 byte to 4 GiB that somebody else wrote. Anything else (a folder, a FIFO that would
// block, a device without an end) is refused before it is read. Every refusal is an Error(argument).
class InputFile {
 public:
  // `what` begins every refusal, such as "routing file".
  InputFile(std::string_view what, const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }

  // Copies `bytes` bytes from `offset` on; refuses if the file has become shorter meanwhile.
  void read(std::uint64_t offset, void* to, std::size_t bytes) const;

  // The whole file, or a refusal if it is larger than `limit` bytes.
  std::string text(std::uint64_t limit) const;

  // Throws Error(argument) with `sentence` after what and which file this is.
  [[noreturn]] void refuse(std::string_view sentence) const;

 private:
  std::string name_;
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

// The largest JSON text that is read: a safetensors header by its format, and the small files for symmetry.
inline constexpr std::uint64_t max_json_bytes = 100'000'000;

// Parses `text`, a part of `file` named `where`. Stricter than nlohmann alone: no key twice in an object, no
// byte 0, at most 16 levels and two million values, so that memory stays in proportion.
nlohmann::json strict_json(const InputFile& file, std::string_view where, std::string_view text);

}  // namespace moelane::tools
