#include "launch/injection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace moelane::tools {
namespace {

std::atomic<bool> others_gave_up{false};

}  // namespace

void set_others_gave_up(bool value) { others_gave_up = value; }

std::string still_stalled(int rank) {
  return fmt::format("rank {} still stalled, as --inject asked, when all others had given up, and was ended",
                     rank);
}

void stall(int rank, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (others_gave_up) throw InjectedDeath{still_stalled(rank)};
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(
        end - std::chrono::steady_clock::now(), std::chrono::milliseconds(20)));
  }
}

}  // namespace moelane::tools
