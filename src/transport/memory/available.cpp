#include "transport/memory/available.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

#include "moelane/error.hpp"

namespace moelane::detail {
namespace {

// "Name:   123 kB" lines.
std::size_t line_of(const char* file, const std::string& name) {
  std::ifstream in(file);
  std::string word;
  std::size_t kilobytes = 0;
  while (in >> word) {
    if (word == name && in >> kilobytes) return kilobytes * 1024;
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return SIZE_MAX;
}

std::size_t number_in(const char* file) {
  std::ifstream in(file);
  std::size_t number = 0;
  return in >> number ? number : SIZE_MAX;
}

}  // namespace

std::size_t memory_at_most() {
  const std::size_t available = line_of("/proc/meminfo", "MemAvailable:");
  const std::size_t swap = line_of("/proc/meminfo", "SwapFree:");
  const std::size_t machine = available == SIZE_MAX || swap == SIZE_MAX ? SIZE_MAX : available + swap;
  const std::size_t container =
      std::min(number_in("/sys/fs/cgroup/memory.max"),                     // version 2
               number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));  // version 1
  return std::min(machine, container);
}

void check_memory(std::size_t ranks, std::size_t committed) {
  const std::size_t most = memory_at_most();
  if (committed <= most) return;
  throw Error(ErrorKind::transport, std::to_string(ranks) + " heaps need " + std::to_string(committed) +
                                        " bytes of memory together, " + std::to_string(most) + " are free");
}

}  // namespace moelane::detail
