#include "machine/gpu_facts.hpp"

#include <fmt/format.h>

#include <exception>
#include <string>

#include "cuda/device.hpp"
#include "machine/cards.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;

json version(int number) {
  return number == 0 ? json() : json(fmt::format("{}.{}", number / 1000, number % 1000 / 10));
}

json card_facts(int index) {
  try {
    const gpu::Card card = gpu::card(index);
    return {{"name", card.name},
            {"multiprocessors", card.multiprocessors},
            {"memory", card.memory},
            {"free", card.free},
            {"capability", fmt::format("{}.{}", card.major, card.minor)},
            {"bus", card.bus}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}};  // one that is broken, or somebody's alone
  }
}

}  // namespace

json gpu_facts() {
  const int count = gpu::cards();
  json cards = json::array(), access = json::array();
  for (int from = 0; from < count; ++from) {
    cards.push_back(card_facts(from));
    json row = json::array();
    for (int to = 0; to < count; ++to) row.push_back(gpu::peer_access(from, to));
    access.push_back(row);
  }
  const Mps mps = find_mps();
  return {{"compiled", gpu::compiled()},
          {"runtime", version(gpu::runtime_version())},
          {"driver", version(gpu::driver_version())},
          {"cards", cards},
          {"peer_access", access},
          {"why", count > 0 ? json() : json(gpu::reason())},
          {"mps", {{"runs", mps.runs}, {"folder", mps.folder}}}};
}

}  // namespace moelane::tools
