#include "routing/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "cli/text.hpp"
#include "moelane/error.hpp"

namespace moelane::tools {
namespace {

constexpr std::uint64_t max_file_bytes = std::uint64_t{4} << 30;

std::string reason(int number) { return std::generic_category().message(number); }

void require_regular(const InputFile& file, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return;
  const char* kind = S_ISDIR(status.st_mode)    ? "a directory"
                     : S_ISFIFO(status.st_mode) ? "a FIFO"
                     : S_ISSOCK(status.st_mode) ? "a socket"
                                                : "a device";
  file.refuse(fmt::format("is {}, must be a regular file", kind));
}

}  // namespace

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

}  // namespace moelane::tools
