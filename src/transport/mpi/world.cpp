#include "transport/mpi/world.hpp"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "moelane/error.hpp"
#include "transport/mpi/load.hpp"

namespace moelane {
namespace detail {
namespace {

constexpr std::size_t kText = 512;

// What every rank gives for an exchange of texts, cut to kText - 1 bytes.
std::vector<std::string> all_texts(mpi::Net& net, const std::string& mine) {
  std::vector<char> all(kText * static_cast<std::size_t>(net.ranks()));
  char cell[kText] = {};
  std::memcpy(cell, mine.data(), std::min(mine.size(), kText - 1));
  net.all_gather(cell, kText, all.data());
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size(); at += kText) texts.emplace_back(all.data() + at);
  return texts;
}

// Equal for two processes exactly when they can share memory as shm does: one running kernel, one network
// namespace (abstract sockets belong to it), one user.
std::string machine_key() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network {};
  stat("/proc/self/ns/net", &network);
  // MOELANE_MPI_APART: every rank as if it had a machine of its own, to try the network's path on one.
  const char* const apart = std::getenv("MOELANE_MPI_APART");
  const std::string own = apart != nullptr && *apart != 0 ? std::to_string(getpid()) : "";
  return boot + " " + std::to_string(network.st_ino) + " " + std::to_string(geteuid()) + " " + own;
}

std::string random_name() {
  std::uint64_t bits[2] = {};
  if (getrandom(bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
    throw Error(ErrorKind::transport, "the system gives no random bytes for a world's name");
  }
  return "mpi-" + std::to_string(bits[0]) + "-" + std::to_string(bits[1]);
}

}  // namespace

MpiWorld::MpiWorld(std::shared_ptr<mpi::Net> net, double timeout)
    : WorldImpl(net->rank(), net->ranks(), timeout), net_(std::move(net)) {
  find_neighbours();
}

const std::string& MpiWorld::transport() const {
  static const std::string name = "mpi";
  return name;
}

void MpiWorld::find_neighbours() {
  const std::vector<std::string> keys = all_texts(*net_, machine_key()),
                                 names = all_texts(*net_, random_name());
  const auto me = static_cast<std::size_t>(rank());
  int place = 0;
  for (int r = 0; r < size(); ++r) {
    if (keys[static_cast<std::size_t>(r)] != keys[me]) continue;
    if (r < rank()) ++place;
    here_.push_back(r);
  }
  const std::string& name = names[static_cast<std::size_t>(here_.front())];
  const World near = World::shm(name, place, ranks_here(), timeout());
  near_ = std::shared_ptr<WorldImpl>(std::make_shared<World>(near), &near.impl());
}

Heaps MpiWorld::map_heaps(std::size_t committed, std::size_t bytes) {
  // Each machine's ranks map theirs; then all go on or none.
  Heaps near;
  std::string failed;
  ErrorKind kind = ErrorKind::transport;
  try {
    near = near_->map_heaps(committed, bytes);
  } catch (const Error& error) {
    failed = error.what();
    kind = error.kind();
  }
  Heaps heaps;
  heaps.bytes = bytes;
  heaps.bases.resize(static_cast<std::size_t>(size()));
  for (std::size_t i = 0; i < here_.size() && failed.empty(); ++i) {
    heaps.bases[static_cast<std::size_t>(here_[i])] = near.bases[i];
  }
  heaps.owner = std::move(near.owner);
  const std::uint32_t number = next_heaps_++;
  if (failed.empty()) {  // before any peer can send there
    heaps.far =
        std::make_shared<mpi::FarHeaps>(net_, number, heaps.bases[static_cast<std::size_t>(rank())], bytes);
  }
  const std::string said =
      failed.empty() ? "bytes " + std::to_string(bytes) : std::to_string(static_cast<int>(kind)) + failed;
  const std::vector<std::string> all = all_texts(*net_, said);
  if (!failed.empty()) throw Error(kind, failed);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r] == said) continue;
    if (all[r].starts_with("bytes ")) {
      throw Error(ErrorKind::mismatch, "rank " + std::to_string(r) + " asks for a heap of " +
                                           all[r].substr(6) + " bytes, rank " + std::to_string(rank()) +
                                           " for " + std::to_string(bytes));
    }
    throw Error(static_cast<ErrorKind>(all[r].front() - '0'), all[r].substr(1));
  }
  return heaps;
}

}  // namespace detail

World World::mpi(double timeout, const void* communicator) {
  if (!(timeout > 0)) {
    throw Error(ErrorKind::argument,
                "timeout is " + std::to_string(timeout) + ", allowed are seconds above 0");
  }
  auto net = std::make_shared<moelane::mpi::Net>(moelane::mpi::loaded_api(), communicator, timeout);
  return World(std::make_shared<detail::MpiWorld>(std::move(net), timeout));
}

}  // namespace moelane
