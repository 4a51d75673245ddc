#include "report/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "cli/text.hpp"
#include "moelane/error.hpp"

namespace moelane::tools {
namespace {

[[noreturn]] void refuse_file(const std::string& flag, const std::string& path, int error) {
  throw Error(ErrorKind::argument, fmt::format("{} is {}, allowed is a file that can be written: {}", flag,
                                               quote(path, 200), std::strerror(error)));
}

}  // namespace

void check_writable(const std::string& flag, const std::string& path) {
  if (path.empty() || path == "-") return;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (file < 0) refuse_file(flag, path, errno);
  close(file);
}

void write_json(const std::string& flag, const std::string& path, const nlohmann::json& value) {
  // A file's name may hold bytes that are no text.
  const std::string text = value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  if (path == "-") {
    std::cout << text << std::endl;
    return;
  }
  std::ofstream file(path);
  file << text << '\n';
  file.close();
  if (!file) refuse_file(flag, path, errno);
}

}  // namespace moelane::tools
