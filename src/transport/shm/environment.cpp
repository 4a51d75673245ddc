#include <charconv>
#include <cstdlib>
#include <cstring>

#include "moelane/error.hpp"
#include "moelane/world.hpp"

namespace moelane {
namespace {

// The variables that launchers set, torchrun among them.
const char* value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

int number_of(const char* variable, int least, int most) {
  const char* const value = value_of(variable);
  const std::string allowed = "allowed are " + std::to_string(least) + " to " + std::to_string(most);
  if (value == nullptr) {
    throw Error(ErrorKind::argument,
                std::string("the environment's ") + variable + " is not set, " + allowed);
  }
  int number = 0;
  const char* const end = value + std::strlen(value);
  const auto [stop, error] = std::from_chars(value, end, number);
  if (error != std::errc{} || stop != end || number < least || number > most) {
    throw Error(ErrorKind::argument,
                std::string("the environment's ") + variable + " is '" + value + "', " + allowed);
  }
  return number;
}

std::string name_from_environment() {
  if (const char* const name = value_of("MOELANE_WORLD")) return name;
  const char* const address = value_of("MASTER_ADDR");
  if (address == nullptr || value_of("MASTER_PORT") == nullptr) {
    throw Error(
        ErrorKind::argument,
        "the environment names no world: neither MOELANE_WORLD nor both MASTER_ADDR and MASTER_PORT are set");
  }
  return std::string(address) + ":" + std::to_string(number_of("MASTER_PORT", 1, 65535));
}

}  // namespace

World World::shm_from_environment(double timeout) {
  const int ranks = number_of("WORLD_SIZE", 1, 1024);
  const int rank = number_of("RANK", 0, ranks - 1);
  if (value_of("LOCAL_WORLD_SIZE") != nullptr && number_of("LOCAL_WORLD_SIZE", 1, 1024) != ranks) {
    throw Error(ErrorKind::argument,
                std::string("the environment's LOCAL_WORLD_SIZE is ") + value_of("LOCAL_WORLD_SIZE") +
                    " of WORLD_SIZE " + std::to_string(ranks) +
                    ", but shm joins the ranks of one machine: the two must be the same");
  }
  return shm(name_from_environment(), rank, ranks, timeout);
}

}  // namespace moelane
