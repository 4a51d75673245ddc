#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moelane::tools {

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

}  // namespace moelane::tools
